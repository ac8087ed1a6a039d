// Package apiserver serves the Kubernetes API. It parses a request and runs it through a list of stages. Reads are
// answered from the watch cache, and writes go to the store. Package kinds declares the kinds. The packages below this
// one implement authentication, authorization and admission.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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
	"clusterctl/daemons/apiserver/openapi"
	"clusterctl/daemons/apiserver/ownership"
	"clusterctl/daemons/apiserver/read"
	"clusterctl/daemons/apiserver/stream"
	"clusterctl/daemons/apiserver/upkeep"
	"clusterctl/daemons/apiserver/webhook"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// Server is an API server. It answers requests as soon as Run has filled its cache.
type Server struct {
	options Options
	log     *slog.Logger
	store   store.Store // counts its calls
	cache   *cache.Cache
	scheme  *runtime.Scheme

	serving        atomic.Pointer[servedKinds]
	builtInOpenAPI *openapi.Handler // of the built-in kinds
	statusHandler  http.Handler     // health and metrics
	infoHandler    http.Handler     // pages about the server itself
	services       *alloc.Services  // nil if no addresses are allocated
	metrics        *serverMetrics
	kindSources    kindSources
	inFlight       chan struct{}

	owners       *ownership.Managers // of fields
	identity     *identity.Identity
	reads        *read.Reads
	writes       *write.Writes
	streams      *stream.Streams
	upkeep       *upkeep.Upkeep
	definitions  *extend.Definitions
	aggregator   *aggregate.Aggregator
	backends     *backend.Connector // to webhooks
	shutdownOnce sync.Once
	bodyBudget   *flow.Budget  // limits the parts of request bodies
	shutdown     chan struct{} // closed when watches must end
}

// defaultRequestTimeout is the time limit of requests that are neither watches nor streams.
const defaultRequestTimeout = time.Minute

// New returns a server. Nothing runs until Run is called.
func New(o Options) (*Server, error) {
	if o.Storage == nil || o.Env.Log == nil || o.Env.Metrics == nil || o.Env.Health == nil {
		return nil, errors.New("an API server needs a store, a log, metrics and health")
	}
	o = o.withDefaults()
	s := &Server{
		options: o, log: o.Env.Log,
		store: o.Storage.counted, cache: o.Storage.cache,
		scheme:         newScheme(o.Storage.kinds),
		builtInOpenAPI: openapi.New(o.Storage.kinds),
		statusHandler:  o.Env.Handler(),
		infoHandler:    o.Env.Pages(false),
		bodyBudget:     body.NewBudget(),
		inFlight:       make(chan struct{}, o.Limits.MaxInFlight),
		shutdown:       make(chan struct{}),
	}
	if len(o.Addresses.ServiceClusterIPRange) > 0 {
		services, err := alloc.NewServices(s.cache, o.Addresses.ServiceClusterIPRange, o.Addresses.ServiceNodePortRange)
		if err != nil {
			return nil, err
		}
		s.services = services
	}
	s.kindSources.changed = make(chan struct{}, 1)
	s.backends = backend.New(s.Objects())
	s.serveKinds(nil)
	if err := s.wire(); err != nil {
		return nil, fmt.Errorf("register the API server's metrics: %w", err)
	}
	// The first readiness check cannot pass before Run, so that /readyz never reports ready from a part of the checks.
	o.Env.Health.AddReady("poststarthook/bootstrap", s.upkeep.CheckBootstrapped)
	o.Env.Health.AddReady("etcd", s.upkeep.CheckStore)
	o.Env.Health.AddReady("informer-sync", s.cache.CheckReady)
	o.Env.Health.AddReady("crd-informer-synced", s.definitions.CheckServed)
	o.Env.Health.AddInformational("stored-objects", s.upkeep.CheckStoredReadable)
	o.Env.IdleTasks.Add(s.cache.CompactLogs)
	return s, nil
}

// wire makes the parts of the server.
func (s *Server) wire() error {
	o := &s.options
	webhooks, err := webhook.NewCounts(o.Env.Metrics)
	if err != nil {
		return err
	}
	s.owners = ownership.New(s.scheme, o.Now)
	s.reads = read.New(s.cache, s.log, s.shutdown)
	s.streams = stream.New(stream.Config{
		Objects: s.Objects(), Log: s.log, KubeletTLS: o.Peers.KubeletTLS, KubeletRoots: o.Peers.KubeletRoots,
	}, doors{s})
	s.writes = write.New(write.Config{
		Cache: s.cache, Store: s.store, Scheme: s.scheme, Reads: s.reads, Owners: s.owners, Services: s.services,
		Now: o.Now, EventTTL: o.Limits.EventTTL, Log: s.log, Complete: upkeep.Complete, Reviews: o.Access.Reviews,
		Token: o.Access.Token,
		Admission: write.Admission{
			Mutators: o.Admission.Mutators, Validators: o.Admission.Validators, Quota: o.Admission.Quota,
			External: o.Admission.External, Backends: s.backends, Webhooks: webhooks,
		},
	}, doors{s})
	s.upkeep = upkeep.New(upkeep.Config{
		Cache: s.cache, Store: s.store, Raw: o.Storage.raw, Prefix: o.Storage.prefix, Writes: s.writes.Own(),
		Services: s.services, Log: s.log, Bootstrap: o.Bootstrap, AdvertiseAddress: o.Addresses.AdvertiseAddress,
		AdvertisePort: o.Addresses.AdvertisePort,
	}, doors{s})
	s.definitions = extend.New(extend.Config{
		Cache: s.cache, Writes: s.writes.Own(), Owners: s.owners, Backends: s.backends, BuiltIn: o.Storage.kinds,
		Now: o.Now, Log: s.log,
	}, doors{s})
	s.aggregator = aggregate.New(aggregate.Config{
		Cache: s.cache, Writes: s.writes.Own(), Backends: s.backends, BuiltIn: o.Storage.kinds, Now: o.Now, Log: s.log,
		Bootstrapped: s.upkeep.Bootstrapped(), Changed: s.kindSources.changed, FrontProxy: o.Peers.FrontProxy,
		ClusterCA: o.Peers.ClusterCA,
	}, doors{s})
	s.identity = identity.New(identity.Config{
		Authenticators: o.Access.Authenticators, Authorizers: o.Access.Authorizers, Anonymous: o.Access.Anonymous,
		UntilRevoked: o.Access.UntilRevoked, OnUnauthenticated: s.recordUnauthenticated,
		Bootstrapped: s.upkeep.Bootstrapped(), Log: s.log,
	})
	s.metrics, err = newObserved(s)
	return err
}

// Objects returns a view of the stored objects, for authorizers and admission plugins. It is empty until Run has filled
// the cache.
func (s *Server) Objects() api.Objects { return s.cache.Objects() }

// Run keeps the cache current and runs the server's own tasks, until ctx ends.
func (s *Server) Run(ctx context.Context) error { return s.RunUntil(ctx, ctx) }

// RunUntil is like Run, but keeps the cache current until drained ends. A read that arrived before the end is answered
// only after the cache has all earlier writes.
func (s *Server) RunUntil(asked, drained context.Context) error {
	reading, stop := context.WithCancel(drained)
	defer stop()
	g, ctx := errgroup.WithContext(asked)
	context.AfterFunc(ctx, func() {
		if asked.Err() == nil {
			stop() // a task failed, so no further request is answered correctly
		}
	})
	g.Go(func() error {
		select {
		case <-s.upkeep.Bootstrapped(): // until then the processors have more urgent work
			s.owners.LoadSchemas()
		case <-ctx.Done():
		}
		return nil
	})
	g.Go(func() error { return s.cache.Run(reading) })
	g.Go(func() error { return s.upkeep.Run(ctx) })
	g.Go(func() error { return s.definitions.Run(ctx) })
	g.Go(func() error { return s.aggregator.Run(ctx) })
	for _, task := range s.options.Tasks {
		g.Go(func() error { return task(ctx, s) })
	}
	g.Go(func() error {
		<-ctx.Done()
		// Watches end, so that the shutdown does not wait for them.
		s.shutdownOnce.Do(func() { close(s.shutdown) })
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
