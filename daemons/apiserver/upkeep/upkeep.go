// Package upkeep maintains what every cluster has: the bootstrap objects, the service of the API servers, the addresses
// of services, and the store.
package upkeep

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/alloc"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/store"
)

// Server is what the upkeep needs from the API server.
type Server interface {
	// Target returns a served resource.
	Target(gvr schema.GroupVersionResource) request.Target
}

// Writer makes the server's own writes.
type Writer interface {
	// Ensure creates an object, or completes the existing one. It returns the revision at which the object is complete.
	Ensure(ctx context.Context, obj runtime.Object) (int64, error)
	// EnsureEach ensures independent objects, and returns the revision at which all of them exist.
	EnsureEach(ctx context.Context, objs []runtime.Object) (int64, error)
	// Change changes an object. next returns the new object for the stored one, which is nil if there is none.
	Change(ctx context.Context, o write.Own, next func(live runtime.Object) (runtime.Object, error)) (
		*cache.Entry, error)
	// ResourceOf returns the resource that serves an object. It is empty if the object's kind is not served.
	ResourceOf(obj runtime.Object) (schema.GroupVersionResource, error)
}

// Config configures Upkeep.
type Config struct {
	Cache    *cache.Cache
	Store    store.Store
	Raw      store.Store // the same store; its calls are not counted
	Prefix   string      // of all keys
	Writes   Writer
	Services *alloc.Services // nil if no addresses are allocated
	Log      *slog.Logger

	// Bootstrap holds objects that are created if they are missing. Missing rules and subjects are added to existing
	// ones (RBAC's default objects).
	Bootstrap []runtime.Object
	// AdvertiseAddress and AdvertisePort are this server's endpoint of the kubernetes service. If the address is empty,
	// the service is not written.
	AdvertiseAddress string
	AdvertisePort    int
}

// Upkeep runs the server's own tasks.
type Upkeep struct {
	config          Config
	server          Server
	serverKeys      *cache.KeySet // lease keys, named by the servers' addresses
	bootstrapDone   chan struct{} // closed when the bootstrap objects exist
	storeError      atomic.Pointer[error]
	storeAnsweredAt atomic.Pointer[time.Time] // time of the last recorded success of the store
}

// New returns the upkeep of the server s. It must be called before the cache runs.
func New(c Config, s Server) *Upkeep {
	return &Upkeep{
		config: c, server: s, serverKeys: c.Cache.KeySet(leaseKeyPrefix), bootstrapDone: make(chan struct{}),
	}
}

// Run runs the tasks until ctx ends.
func (s *Upkeep) Run(ctx context.Context) error {
	tasks := []func(context.Context) error{s.bootstrap, s.monitorStore, s.compact}
	if s.config.AdvertiseAddress != "" {
		tasks = append(tasks, s.advertise)
	}
	if s.config.Services != nil {
		tasks = append(tasks, s.repairAddresses)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, task := range tasks {
		g.Go(func() error { return task(ctx) })
	}
	return g.Wait()
}

// Bootstrapped returns a channel that is closed when the bootstrap objects exist.
func (s *Upkeep) Bootstrapped() <-chan struct{} { return s.bootstrapDone }
