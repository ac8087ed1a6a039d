// Package write creates, updates, patches, applies and deletes objects, for clients and for the server itself.
package write

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/alloc"
	"clusterctl/daemons/apiserver/backend"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/ownership"
	"clusterctl/daemons/apiserver/read"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/webhook"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/store"
)

// Server is what writes need from the API server.
type Server interface {
	// Target returns a served resource.
	Target(gvr schema.GroupVersionResource) request.Target
	// Resources returns the served resources. The caller must not change them.
	Resources() map[schema.GroupVersionResource]wire.Served
	// Authorize returns nil if the user may perform a request, and otherwise the error to answer with.
	Authorize(ctx context.Context, user api.User, r api.Request) error
}

// Review answers the creation of a kind that is not stored (a review), or of a subresource that has a type of its own
// (a token). obj is the object that the client sent, decoded and defaulted. The returned object is the response.
type Review func(ctx context.Context, user api.User, obj runtime.Object) (runtime.Object, error)

// TokenReview answers serviceaccounts/token for the named service account.
type TokenReview func(ctx context.Context, user api.User, namespace, name string,
	obj runtime.Object) (runtime.Object, error)

// Config configures Writes.
type Config struct {
	Cache    *cache.Cache
	Store    store.Store
	Scheme   *runtime.Scheme
	Reads    *read.Reads
	Owners   *ownership.Managers
	Services *alloc.Services // nil if no addresses are allocated
	Now      func() time.Time
	EventTTL time.Duration
	Log      *slog.Logger
	// Complete returns a stored object of the server with the parts added that want has and the object lacks.
	Complete func(live, want runtime.Object) runtime.Object

	// Reviews holds the handlers of virtual kinds, by resource. Token is the handler of serviceaccounts/token.
	Reviews map[schema.GroupResource]Review
	Token   TokenReview
	Admission
}

// Admission configures the admission plugins.
type Admission struct {
	Mutators   []api.Mutator
	Validators []api.Validator
	// Quota is the last validator. It is checked a second time for the writes that it bounds, one write per namespace
	// at a time. It may be nil.
	Quota QuotaValidator
	// External selects the policies and webhooks that the cluster's objects configure; nil runs none.
	External *External
	// Backends connects to webhooks, and Webhooks counts their calls.
	Backends *backend.Connector
	Webhooks *webhook.Counts
}

// External configures policies and webhooks.
type External struct {
	Authorizer api.Authorizer // answers the authorization checks of policies and webhooks
}

// Writes answers requests that write.
type Writes struct {
	config     Config
	server     Server
	admitter   *Admitter
	quotaLocks namedLocks // locks for quota checks, by namespace
}

// New returns Writes that ask the server s.
func New(c Config, s Server) *Writes {
	w := &Writes{config: c, server: s}
	w.admitter = newAdmitter(&w.config, s)
	return w
}

// Admitter returns the admission plugins that see all writes.
func (s *Writes) Admitter() *Admitter { return s.admitter }

// Own returns the writer of the server's own objects.
func (s *Writes) Own() OwnWriter { return OwnWriter{s} }

// Subresources returns the handlers of subresources.
func (s *Writes) Subresources() Subresources { return Subresources{s} }
