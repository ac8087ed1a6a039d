// Package kind defines the declaration of a kind of object: its names, columns, defaults, validation and subresources.
package kind

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kind is the declaration of one kind. The zero value of an optional field means upstream's most common behaviour.
type Kind struct {
	GVK        schema.GroupVersionKind // the stored and preferred version
	Resource   string                  // plural, as in paths: "pods"
	Singular   string                  // as in kubectl: "pod"
	ShortNames []string
	Categories []string // such as "all"
	Namespaced bool

	// StorageKey is the part of the storage key after the prefix, as upstream defines it: "pods", "services/specs",
	// "minions". Empty means Resource.
	StorageKey string

	// New and NewList return empty typed objects of GVK.
	New     func() runtime.Object
	NewList func() runtime.Object

	// Aliases are further group versions in which the same stored objects are served, such as events.k8s.io/v1 for
	// events.
	Aliases []Alias

	// Verbs are the served verbs. nil means all: create, get, list, watch, update, patch, delete, deletecollection.
	Verbs []string

	// CreateOnUpdate means that a PUT creates an object that does not exist.
	CreateOnUpdate bool

	// ConditionalUpdate means that a PUT must contain a resource version. Without one, concurrent writes could be lost
	// unnoticed.
	ConditionalUpdate bool

	// Virtual kinds, such as reviews, are answered by a handler in the API server and never stored. Only create is
	// served, or the listed Verbs.
	Virtual bool

	// Default fills in missing fields. It is called after a write is decoded.
	Default func(obj runtime.Object)

	// PrepareCreate and PrepareUpdate set what clients cannot choose: they clear or keep the status, and copy immutable
	// fields that the server sets. The API server itself sets the UID and timestamps. With HasGeneration, it also
	// raises the generation if anything but metadata and status changed, or if Counts reports true.
	PrepareCreate    func(obj runtime.Object)
	PrepareUpdate    func(obj, old runtime.Object)
	HasGeneration    bool
	RaisesGeneration func(obj, old runtime.Object) bool

	// NameErrors returns why a name is invalid. If it is nil, names must be DNS subdomains.
	NameErrors func(name string, prefix bool) []string

	// Validate and ValidateUpdate return all errors in a write. The API server has already validated the metadata.
	Validate       func(obj runtime.Object) field.ErrorList
	ValidateUpdate func(obj, old runtime.Object) field.ErrorList

	// Warnings returns texts for the Warning header. old is nil for new objects. Deprecated, if set, is in the header
	// of all responses for the kind.
	Warnings   func(obj, old runtime.Object) []string
	Deprecated string

	// Fields returns the selectable fields besides metadata.name and metadata.namespace, such as spec.nodeName of pods.
	// IndexedFields names those for which watches and lists use an index instead of scanning all objects.
	Fields        func(obj runtime.Object) fields.Set
	IndexedFields []string
	// FieldPaths holds the places of these fields in an object's JSON, sorted by name: either of all fields or nil. It
	// avoids decoding objects, for kinds with very many objects.
	FieldPaths []FieldPath

	// Columns are kubectl's columns after NAME, which every kind has. Row returns the cells of an object in the same
	// order. nil means only AGE.
	Columns []metav1.TableColumnDefinition
	Row     func(obj runtime.Object) []any
	// RowHasName means that Columns and Row contain NAME themselves. Events have it last.
	RowHasName bool

	// GracePeriod returns how many seconds a deletion waits for its executor, which is the kubelet for pods. requested
	// is the number in the request, or nil. If GracePeriod is nil, the deletion does not wait.
	GracePeriod func(obj runtime.Object, requested *int64) int64

	// Status, if set, enables the status subresource. A write to it changes only the status and the metadata that it
	// does not keep. A write to the object never changes the status.
	Status *Status

	// Scale, if set, enables the scale subresource.
	Scale *Scale

	// Subresources names further subresources, each with a handler in the API server: binding, eviction, token, log,
	// exec, attach, portforward, proxy, approval, finalize, ephemeralcontainers, resize.
	Subresources []string

	// Dependents is the default for the dependents of a deleted object if the request has no propagation policy.
	Dependents Dependents

	// Finalizers are added by a deletion, for work that must be done first.
	Finalizers []string

	// Expires means that the store removes an object some time after its last write, as with events.
	Expires bool

	// Untyped is set for kinds that an object in the cluster declares. Each version of them is a Kind of its own.
	Untyped *Untyped
}

// Dependents selects what happens to the dependents of a deleted object if the request does not specify it.
type Dependents int

// Upstream's defaults.
const (
	DeleteDependents Dependents = iota // delete dependents in the background
	OrphanDependents                   // orphan dependents, as the first versions of the kind did
	NoDependents                       // the kind owns no objects; propagation policies are ignored
)

// Alias is another group version of a kind.
type Alias struct {
	GVK      schema.GroupVersionKind
	New      func() runtime.Object
	NewList  func() runtime.Object
	FromHub  func(hub runtime.Object) (runtime.Object, error) // hub is of the kind's GVK
	ToHub    func(obj runtime.Object) (runtime.Object, error)
	Resource string // empty means the kind's resource

	// Checks, if set, replaces Validate and ValidateUpdate for this version. It gets objects of the kind's own version.
	// old is nil for new objects.
	Checks func(obj, old runtime.Object) field.ErrorList
}

// Status defines the behaviour of a kind's status subresource.
type Status struct {
	// Copy copies from's status to to. A write to the object retains the stored status, and a write to the status
	// retains everything else.
	Copy func(to, from runtime.Object)
	// Prepare sets the fields of a new status that clients cannot choose. It may be nil.
	Prepare func(obj, old runtime.Object)
	// Validate returns the errors of a new status. It may be nil.
	Validate func(obj, old runtime.Object) field.ErrorList
	// KeepsAllMeta means that a write to the status changes no metadata.
	KeepsAllMeta bool
	// KeptMeta lists the metadata fields that a write to the status does not change.
	KeptMeta []string
}

// Scale reads and sets replicas for the scale subresource (autoscaling/v1 Scale).
type Scale struct {
	Get  func(obj runtime.Object) (spec, status int32, selector string)
	Set  func(obj runtime.Object, replicas int32)
	Path []string // path of the replicas field; nil means spec.replicas
}

// GVR returns the resource in the stored version.
func (k *Kind) GVR() schema.GroupVersionResource {
	return k.GVK.GroupVersion().WithResource(k.Resource)
}

// GR returns the group and resource.
func (k *Kind) GR() schema.GroupResource { return k.GVR().GroupResource() }

// CreateOnlyVerbs are the verbs of kinds that are answered and not stored.
var CreateOnlyVerbs = []string{"create"}
