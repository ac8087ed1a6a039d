package api

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Admission describes a write to admission plugins.
type Admission struct {
	Operation string // CREATE, UPDATE, DELETE or CONNECT
	User      User
	// Internal reports that the API server itself makes the write. User.Name does not prove that, since a client may
	// impersonate any name.
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

	// Versions converts the object to other versions. It is nil for objects that have only one form, such as a Binding.
	Versions Versions
	// IsConverted reports that webhooks and policies see the write in another form: as the Scale, Binding or Eviction
	// that was sent.
	IsConverted bool
	// Reinvocation holds what mutators store between rounds over the object.
	Reinvocation Reinvocation
}

// Origin is the request that a write comes from.
type Origin interface {
	// Options returns the client's options for the write, as *metav1.CreateOptions, UpdateOptions or DeleteOptions. It
	// returns nil for connections.
	Options() runtime.Object
	// Verb returns the verb of the request: a patch may create an object or change it.
	Verb() string
	// Annotate adds an annotation to the audit event of the request.
	Annotate(key, value string)
	// Audited reports whether the request has an audit event and, if contents is set, whether the event includes
	// contents.
	Audited(contents bool) bool
}

// Version is a version in which a kind is served.
type Version struct {
	Kind     schema.GroupVersionKind
	Resource schema.GroupVersionResource
}

// Versions converts between the versions of an object's kind.
type Versions interface {
	// Served returns the served versions, with the client's version first.
	Served() []Version
	// To converts an object of Admission.Kind to another version, and From converts back.
	To(ctx context.Context, obj runtime.Object, v Version) (runtime.Object, error)
	From(ctx context.Context, obj runtime.Object, v Version) (runtime.Object, error)
}

// Reinvocation holds what mutators store during one write. If a mutator changes what earlier ones have seen, there is a
// second round.
type Reinvocation struct {
	IsSecond bool           // this is the second round
	IsNeeded bool           // a second round is needed
	Memory   map[string]any // by the plugin's name
}

// Mutator changes Object before it is validated. An error that is an API status is sent unchanged, any other as an
// internal error.
type Mutator interface {
	Admit(ctx context.Context, a *Admission) error
}

// Validator refuses a write by returning an error, usually apierrors.NewForbidden. A plugin may also be a Mutator. All
// mutators run before all validators.
type Validator interface {
	Validate(ctx context.Context, a *Admission) error
}

// Named is a Mutator or Validator with a name for metrics.
type Named interface{ Name() string }

// ExternalCaller is a plugin that calls external programs. Their response time does not count as the server's.
type ExternalCaller interface {
	Named
	CallsExternal()
}
