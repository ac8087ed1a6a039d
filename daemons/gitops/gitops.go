// Package gitops reconciles the cluster with Git repositories. A GitSource names a folder of a repository. The
// controller fetches it, renders its files to objects, applies these as the source's service account, deletes objects
// that are no longer rendered, and reports health and drift in the status of the GitSource.
//
// The decisions are functions of values: which revision to use (revision.go), in which order objects are applied
// (order.go), what is deleted (prune.go), what drift means (drift.go), whether an object is healthy (health.go) and
// when a source is reconciled (schedule.go). Fetching, rendering and applying are interfaces, which cmd/gitops
// implements with go-git, kustomize and Helm, none of which this package imports.
package gitops

import (
	"context"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Bounds of what one source may contain.
const (
	MaxFiles     = 20_000   // files that a renderer reads
	MaxBytes     = 64 << 20 // bytes of all files that a renderer reads
	MaxFileBytes = 16 << 20 // bytes of one file
	MaxObjects   = 10_000   // rendered objects
	MaxObject    = 1 << 20  // bytes of one object, encoded as JSON
	MaxInventory = 1 << 20  // bytes of an inventory; the store limits the size of the GitSource
	maxListed    = 20       // entries of a list in the status, except for the inventory
	maxMessage   = 1024     // bytes of a condition's message
)

// Key identifies a source.
type Key = types.NamespacedName

// Snapshot is the content of a repository at one revision.
type Snapshot struct {
	// Revision identifies the content, such as main@sha1:3f2a…. Two snapshots of one source with the same revision have
	// the same files.
	Revision string
	// Files are the files of the whole repository, since an overlay may refer to folders beside its own. Symbolic links
	// appear as such and are never followed.
	Files fs.FS
	// Redact removes decrypted values from messages. It is nil if nothing is decrypted.
	Redact func(text string) string
	// Release, if not nil, is called when Files is no longer read.
	Release func()
}

// Fetcher gets snapshots.
type Fetcher interface {
	// Fetch returns the snapshot that the source selects at present. An error that implements interface{ Permanent()
	// bool } may report that a retry cannot succeed before the source changes. A revision without the signature that
	// the source requires is a ReasonError with ReasonVerification. Fetch bounds the size of what it downloads, and
	// ends when ctx ends.
	Fetch(ctx context.Context, s *Source, secrets Secrets) (Snapshot, error)
}

// Secrets are the data of the Secrets that fetching a source needs. They are nil if the source names none.
type Secrets struct {
	Credentials map[string][]byte // of spec.secret
	Signers     map[string][]byte // of spec.verify.secret: public keys
	Decryption  map[string][]byte // of spec.decryption.secret: private keys, which Fetch does not read
}

// ReasonError is an error with a reason of its own for the Ready condition.
type ReasonError struct {
	Reason string
	Err    error
}

func (e *ReasonError) Error() string { return e.Err.Error() }

func (e *ReasonError) Unwrap() error { return e.Err }

// Reasons of ReasonError.
const (
	// ReasonVerification means that a revision has no valid signature.
	ReasonVerification = "VerificationFailed"
	// ReasonDecryption means that an encrypted file cannot be decrypted, or was changed.
	ReasonDecryption = "DecryptionFailed"
)

// Decrypter decrypts the files of snapshots.
type Decrypter interface {
	// Decrypt returns files that are decrypted when they are opened. keys are the data of the source's Secret with
	// private keys. redact removes the values that were decrypted so far from a message. Errors, also those of the
	// files, are ReasonErrors with ReasonDecryption, and contain no decrypted values.
	Decrypt(files fs.FS, keys map[string][]byte) (decrypted fs.FS, redact func(text string) string, err error)
}

// Renderer turns files into objects.
type Renderer interface {
	// Render returns the objects of the source's folder, in the order of the files. It reads nothing but the snapshot
	// and what the source's values refer to, which it reads with read.
	Render(ctx context.Context, s *Source, from Snapshot, read Reader) ([]Object, error)
}

// Reader reads objects with the rights of a source's service account.
type Reader interface {
	// Get returns an object, or nil if it does not exist.
	Get(ctx context.Context, id ObjectID) (*unstructured.Unstructured, error)
}

// Scope is the scope of a kind: its objects have a namespace or not.
type Scope int

// Scopes. ScopeUnknown means that the API does not serve the kind.
const (
	ScopeUnknown Scope = iota
	ScopeNamespaced
	ScopeCluster
)

// Applier reads and writes objects with the rights of one service account. Its methods are safe for concurrent use.
type Applier interface {
	Reader
	// Scope returns the scope of a kind.
	Scope(ctx context.Context, kind schema.GroupKind) (Scope, error)
	// Find returns the live objects in the order of ids, nil for those that do not exist. It returns an error if the
	// API does not serve a kind, since that proves nothing about the objects.
	Find(ctx context.Context, ids []ObjectID) ([]*unstructured.Unstructured, error)
	// Compare returns what Apply would do. It changes nothing. Objects that are refused only because an object of the
	// same call is missing, such as their namespace or definition, have no error.
	Compare(ctx context.Context, objects []Object) ([]Result, error)
	// Apply applies objects that do not depend on each other. It writes only those that differ. The error is about the
	// API; errors about single objects are in the results.
	Apply(ctx context.Context, objects []Object) ([]Result, error)
	// Delete requests the deletion of an object with this UID. An object that is gone, or that has another UID, is not
	// an error.
	Delete(ctx context.Context, id ObjectID, uid types.UID) error
}

// Tracker is implemented by appliers that watch objects.
type Tracker interface {
	// Versions returns what identifies the present versions of objects, in the order of ids. An empty text means that
	// the version is not known, or that the object does not exist. An object with the same text has not changed in
	// between. It does not wait. The objects are watched from now on.
	Versions(ids []ObjectID) []string
}

// VersionOf returns what identifies the version of a live object, or "" if that is not known.
func VersionOf(live *unstructured.Unstructured) string {
	if live == nil || live.GetUID() == "" || live.GetResourceVersion() == "" {
		return ""
	}
	return string(live.GetUID()) + " " + live.GetResourceVersion()
}

// Cluster provides appliers.
type Cluster interface {
	As(namespace, serviceAccount string) (Applier, error)
}

// Action is what applying an object does.
type Action string

// Actions.
const (
	ActionNone   Action = ""
	ActionCreate Action = "create"
	ActionChange Action = "change"
)

// Result is the outcome for one object.
type Result struct {
	Action Action
	Diff   []string // lines of a change, as "path: old → new"; secrets are hidden
	Err    error    // the API refused the object, or it belongs to another client
	// Live is the object as it is now, after Apply. It is nil if the object does not exist or if that is not known.
	Live *unstructured.Unstructured
}

// Object is a rendered object.
type Object struct {
	*unstructured.Unstructured
	File string // path in the repository
	Line int    // first line of the object in File; 0 if it is not known
	// Adopt lets the object be applied over one that another client has created.
	Adopt bool
	// Live is the live object, if it was read in the same round. Comparing and applying need not read it again.
	Live *unstructured.Unstructured

	digest objectDigest // of the content; set before the object is applied
}

// ID returns the object's identity.
func (o Object) ID() ObjectID {
	return ObjectID{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}
