// Package apiserver serves the Kubernetes API. It parses a request and runs it through a list of stages. Reads are
// answered from the watch cache, and writes go to the store. Package kinds declares the kinds. The packages below this
// one implement authentication, authorization and admission.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/aggregate"
	"clusterctl/daemons/apiserver/alloc"
	"clusterctl/daemons/apiserver/backend"
	"clusterctl/daemons/apiserver/body"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/extend"
	"clusterctl/daemons/apiserver/flow"
	"clusterctl/daemons/apiserver/identity"
	"clusterctl/daemons/apiserver/ownership"
	"clusterctl/daemons/apiserver/read"
	"clusterctl/daemons/apiserver/stream"
	"clusterctl/daemons/apiserver/upkeep"
	"clusterctl/daemons/apiserver/webhook"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/client"
	"clusterctl/daemons/kinds"
)

// Server is an API server. It answers requests as soon as Run has filled its cache.
type Server struct {
	options Options
	log     *slog.Logger
	cache   *cache.Cache

	stages     []stage // of all requests, in order
	kinds      *kindRegistry
	identity   *identity.Identity
	audit      auditing
	seats      seats
	bodyBudget *flow.Budget // limits the parts of request bodies
	resources  resourceHandlers
	pages      pages
	metrics    *serverMetrics

	cacheWaiters atomic.Int32 // requests that wait for the cache to be filled

	background background
	shutdown   shutdown
}

// background are the parts of a server that run besides its requests.
type background struct {
	owners      *ownership.Managers // of fields
	upkeep      *upkeep.Upkeep
	definitions *extend.Definitions
	aggregator  *aggregate.Aggregator
}

// start runs the parts in g until ctx ends.
func (b *background) start(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error {
		select {
		case <-b.upkeep.Bootstrapped(): // until then the processors have more urgent work
			b.owners.LoadSchemas()
		case <-ctx.Done():
		}
		return nil
	})
	g.Go(func() error { return b.upkeep.Run(ctx) })
	g.Go(func() error { return b.definitions.Run(ctx) })
	g.Go(func() error { return b.aggregator.Run(ctx) })
}

// shutdown signals that watches must end.
type shutdown struct {
	once    sync.Once
	started chan struct{}
}

// begin closes begun, once.
func (s *shutdown) begin() { s.once.Do(func() { close(s.started) }) }

// defaultRequestTimeout is the time limit of requests that are neither watches nor streams.
const defaultRequestTimeout = time.Minute

// New returns a server. Nothing runs until Run is called.
func New(o Options) (*Server, error) {
	if o.Storage == nil || o.Env.Log == nil || o.Env.Metrics == nil || o.Env.Health == nil {
		return nil, errors.New("an API server needs a store, a log, metrics and health")
	}
	o = o.withDefaults()
	s := &Server{
		options: o, log: o.Env.Log, cache: o.Storage.cache,
		kinds:      newKindRegistry(o.Storage, o.Addresses),
		audit:      auditing{auditor: o.Auditor, scheme: newScheme(o.Storage.kinds), now: o.Now},
		seats:      seats{flow: o.Limits.Flow, inFlight: make(chan struct{}, o.Limits.MaxInFlight)},
		bodyBudget: body.NewBudget(),
		pages:      pages{status: o.Env.Handler(), info: o.Env.Pages(false)},
		shutdown:   shutdown{started: make(chan struct{})},
	}
	var services *alloc.Services // nil if no addresses are allocated
	if len(o.Addresses.ServiceClusterIPRange) > 0 {
		var err error
		services, err = alloc.NewServices(s.cache, o.Addresses.ServiceClusterIPRange, o.Addresses.ServiceNodePortRange)
		if err != nil {
			return nil, err
		}
	}
	if err := s.wire(services); err != nil {
		return nil, fmt.Errorf("register the API server's metrics: %w", err)
	}
	// The first readiness check cannot pass before Run, so that /readyz never reports ready from a part of the checks.
	tasks := &s.background
	o.Env.Health.AddReady("poststarthook/bootstrap", tasks.upkeep.CheckBootstrapped)
	o.Env.Health.AddReady("etcd", tasks.upkeep.CheckStore)
	o.Env.Health.AddReady("informer-sync", s.cache.CheckReady)
	o.Env.Health.AddReady("crd-informer-synced", tasks.definitions.CheckServed)
	o.Env.Health.AddInformational("stored-objects", tasks.upkeep.CheckStoredReadable)
	o.Env.IdleTasks.Add(s.cache.CompactLogs)
	return s, nil
}

// wire makes the parts of the server.
func (s *Server) wire(services *alloc.Services) error {
	o := &s.options
	webhooks, err := webhook.NewCounts(o.Env.Metrics)
	if err != nil {
		return err
	}
	backends := backend.New(s.Objects()) // webhooks and aggregated servers
	if backends.WrapTransport, err = client.RequestCounter(o.Env.Metrics); err != nil {
		return err
	}
	scheme := s.audit.scheme
	owners := ownership.New(scheme, o.Now)
	reads := read.New(s.cache, s.log, s.shutdown.started)
	streams := stream.New(stream.Config{
		Objects: s.Objects(), Log: s.log, KubeletTLS: o.Peers.KubeletTLS, KubeletRoots: o.Peers.KubeletRoots,
	}, doors{s})
	writes := write.New(write.Config{
		Cache: s.cache, Store: o.Storage.counted, Scheme: scheme, Reads: reads, Owners: owners, Services: services,
		Now: o.Now, EventTTL: o.Limits.EventTTL, Log: s.log, Complete: upkeep.Complete, Reviews: o.Access.Reviews,
		Token: o.Access.Token,
		Admission: write.Admission{
			Mutators: o.Admission.Mutators, Validators: o.Admission.Validators, Quota: o.Admission.Quota,
			External: o.Admission.External, Backends: backends, Webhooks: webhooks,
		},
	}, doors{s})
	maintained := upkeep.New(upkeep.Config{
		Cache: s.cache, Store: o.Storage.counted, Raw: o.Storage.raw, Prefix: o.Storage.prefix, Writes: writes.Own(),
		Services: services, Log: s.log, Bootstrap: o.Bootstrap, AdvertiseAddress: o.Addresses.AdvertiseAddress,
		AdvertisePort: o.Addresses.AdvertisePort,
	}, doors{s})
	definitions := extend.New(extend.Config{
		Cache: s.cache, Writes: writes.Own(), Owners: owners, Backends: backends, BuiltIn: o.Storage.kinds, Now: o.Now,
		Log: s.log,
	}, doors{s})
	aggregator := aggregate.New(aggregate.Config{
		Cache: s.cache, Writes: writes.Own(), Backends: backends, BuiltIn: o.Storage.kinds, Now: o.Now, Log: s.log,
		Bootstrapped: maintained.Bootstrapped(), Changed: s.kinds.changed, FrontProxy: o.Peers.FrontProxy,
		ClusterCA: o.Peers.ClusterCA,
	}, doors{s})
	s.background = background{owners: owners, upkeep: maintained, definitions: definitions, aggregator: aggregator}
	s.identity = identity.New(identity.Config{
		Authenticators: o.Access.Authenticators, Authorizers: o.Access.Authorizers, Anonymous: o.Access.Anonymous,
		UntilRevoked: o.Access.UntilRevoked, OnUnauthenticated: s.audit.recordUnauthenticated,
		Bootstrapped: maintained.Bootstrapped(), Log: s.log,
	})
	s.metrics, err = newObserved(o.Env.Metrics, o.Storage,
		slices.Concat(reads.Metrics(), writes.Admitter().Metrics(), streams.Metrics(), aggregator.Metrics()))
	s.resources = resourceHandlers{
		reads: reads, writes: writes, streams: streams, metrics: s.metrics,
		components: componentStatuses{
			objects: s.Objects(), reads: reads, checkStore: maintained.CheckStore, now: o.Now,
		},
	}
	s.stages = s.newStages()
	return err
}

// Objects returns a view of the stored objects, for authorizers and admission plugins. It is empty until Run has filled
// the cache.
func (s *Server) Objects() api.CurrentObjects { return s.cache.Objects() }

// Run keeps the cache current and runs the server's own tasks, until ctx ends.
func (s *Server) Run(ctx context.Context) error { return s.RunUntil(ctx, ctx) }

// RunUntil is like Run, but keeps the cache current until drained ends. A read that arrived before the end is answered
// only after the cache has all earlier writes.
func (s *Server) RunUntil(stopping, drained context.Context) error {
	reading, stop := context.WithCancel(drained)
	defer stop()
	g, ctx := errgroup.WithContext(stopping)
	context.AfterFunc(ctx, func() {
		if stopping.Err() == nil {
			stop() // a task failed, so no further request is answered correctly
		}
	})
	g.Go(func() error { return s.cache.Run(reading) })
	s.background.start(ctx, g)
	for _, task := range s.options.Tasks {
		g.Go(func() error { return task(ctx, s) })
	}
	g.Go(func() error {
		<-ctx.Done()
		// Watches end, so that the shutdown does not wait for them.
		s.shutdown.begin()
		return nil
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// newScheme returns a scheme with the served kinds, under every group version.
func newScheme(list []*kinds.Kind) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, k := range list {
		scheme.AddKnownTypeWithName(k.GVK, k.New())
		if k.NewList != nil {
			scheme.AddKnownTypeWithName(k.GVK.GroupVersion().WithKind(k.GVK.Kind+"List"), k.NewList())
		}
		metav1.AddToGroupVersion(scheme, k.GVK.GroupVersion())
		for _, a := range k.Aliases {
			scheme.AddKnownTypeWithName(a.GVK, a.New())
			if a.NewList != nil {
				scheme.AddKnownTypeWithName(a.GVK.GroupVersion().WithKind(a.GVK.Kind+"List"), a.NewList())
			}
			metav1.AddToGroupVersion(scheme, a.GVK.GroupVersion())
		}
	}
	addSubresourceTypes(scheme)
	return scheme
}
