package api

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Admission is what admission plugins see of a write.
type Admission struct {
	Operation string // CREATE, UPDATE, DELETE or CONNECT
	User      User
	// whether the API server writes by itself. Its name does not say so: a client may impersonate any name
	Internal    bool
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string
	Namespace   string
	Name        string
	Object      runtime.Object // nil on DELETE
	Old         runtime.Object // nil on CREATE
	DryRun      bool
	// Warn adds a Warning header to the answer.
	Warn   func(text string)
	Origin Origin // may be nil

	// Versions tells in which versions the object can be seen; nil for what is only
	// seen as it is, such as a Binding.
	Versions Versions
	// Presented says that those outside this server (webhooks and policies) are asked about
	// the write in another form: as the Scale, Binding or Eviction that was sent.
	Presented bool
	// Again is what mutators remember from one round over the object to the next.
	Again Again
}

// Origin is the request that a write comes from.
type Origin interface {
	// Options returns what the client asked for with the write, as *metav1.CreateOptions, UpdateOptions
	// or DeleteOptions, whichever the operation is; nil for connections.
	Options() runtime.Object
	// Verb is what the client asked for: a patch may be a creation as well as a change.
	Verb() string
	// Annotate adds an annotation to the audit event of the request.
	Annotate(key, value string)
	// Audited reports whether there is such an event, and one that tells of contents where those are meant.
	Audited(contents bool) bool
}

// Version is a version in which a kind is served.
type Version struct {
	Kind     schema.GroupVersionKind
	Resource schema.GroupVersionResource
}

// Versions are the versions of the kind of an object.
type Versions interface {
	// Served returns the versions that are served, the one that the client chose first.
	Served() []Version
	// To returns an object of Admission.Kind in another version, From the reverse.
	To(ctx context.Context, obj runtime.Object, v Version) (runtime.Object, error)
	From(ctx context.Context, obj runtime.Object, v Version) (runtime.Object, error)
}

// Again is what mutators remember over one write. When one of them changes what those
// before it have seen, there is a second round.
type Again struct {
	Second bool           // whether this is the second round
	Wanted bool           // whether there should be one
	Memory map[string]any // by plugin
}

// Mutator changes Object before it is validated. An error that is an API status is
// sent as it is, any other as an internal error.
type Mutator interface {
	Admit(ctx context.Context, a *Admission) error
}

// Validator refuses by returning an error, most often apierrors.NewForbidden. A
// plugin may be a Mutator too: all mutators come before all validators.
type Validator interface {
	Validate(ctx context.Context, a *Admission) error
}

// Named is a Mutator or Validator that is counted by its name.
type Named interface{ Name() string }

// Outside is one that asks programs outside this server: what it takes is not the server's doing.
type Outside interface {
	Named
	AsksOutside()
}
