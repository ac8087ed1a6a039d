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
	"clusterctl/daemons/apiserver/alloc"
	"clusterctl/daemons/apiserver/backend"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/flow"
	"clusterctl/daemons/apiserver/openapi"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// Server is an API server. It answers requests as soon as Run has filled its cache.
type Server struct {
	o      Options
	log    *slog.Logger
	store  store.Store // counts its calls
	cache  *cache.Cache
	scheme *runtime.Scheme

	serving   atomic.Pointer[offer]
	described *openapi.Handler // of the built-in kinds
	own       http.Handler     // health and metrics
	pages     http.Handler     // pages about the server itself
	services  *alloc.Services  // nil if no addresses are allocated
	observed  *observed
	servers   *cache.Names // lease keys, named by the servers' addresses
	followed  followed
	shown     followed // like followed, but includes definitions that could not be served
	offering  offering
	inFlight  chan struct{}
	ledgers   turns // locks for quota checks, by namespace

	fields    fieldManagers
	kubelets  transports
	plain     *http.Transport // to pods and services
	reach     *backend.Reach  // to webhooks
	endStream sync.Once
	furnished chan struct{} // closed when the default objects of a cluster exist
	extended  atomic.Bool   // whether custom resources have been served once
	pasts     chan struct{} // holds a token for each list that reads an old revision from the store
	room      *flow.Budget  // limits the parts of request bodies
	shutdown  chan struct{} // closed when watches must end
}

// New returns a server. Nothing runs until Run is called.
func New(o Options) (*Server, error) {
	if o.Store == nil || o.Env.Log == nil || o.Env.Metrics == nil || o.Env.Health == nil {
		return nil, errors.New("an API server needs a store, a log, metrics and health")
	}
	if o.Prefix == "" {
		o.Prefix = "/registry"
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = time.Minute
	}
	if o.EventTTL == 0 {
		o.EventTTL = time.Hour
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 800
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	counted := newCountedStore(o.Store)
	s := &Server{
		o: o, log: o.Env.Log,
		store: counted, cache: cache.New(counted, o.Prefix, o.Kinds, o.Env.Log),
		scheme:    newScheme(o.Kinds),
		own:       o.Env.Handler(),
		pages:     o.Env.Pages(false),
		pasts:     make(chan struct{}, mostPasts),
		room:      flow.NewBudget(maxParts, reserveParts),
		inFlight:  make(chan struct{}, o.MaxInFlight),
		furnished: make(chan struct{}), shutdown: make(chan struct{}), plain: newPlain(),
	}
	counted.resource = resourceOf(s.cache)
	if len(o.ServiceClusterIPRange) > 0 {
		services, err := alloc.NewServices(s.cache, o.ServiceClusterIPRange, o.ServiceNodePortRange)
		if err != nil {
			return nil, err
		}
		s.services = services
	}
	s.servers = s.cache.Names(presence)
	s.offering.changed = make(chan struct{}, 1)
	s.reach = backend.New(s.Objects())
	s.fields.init(s)
	s.described = openapi.New(o.Kinds)
	s.serveKinds(nil)
	var err error
	if s.observed, err = newObserved(s); err != nil {
		return nil, fmt.Errorf("register the API server's metrics: %w", err)
	}
	// The first readiness check cannot pass before Run, so that /readyz never reports ready from a part of the checks.
	o.Env.Health.Ready("poststarthook/bootstrap", s.bootstrapped)
	o.Env.Health.Ready("etcd", s.storeWell)
	o.Env.Health.Ready("informer-sync", s.cache.Ready)
	o.Env.Health.Ready("crd-informer-synced", s.mayExtend)
	o.Env.Health.Tell("stored-objects", s.storedReadable)
	o.Env.Rest.Add(s.cache.Rest)
	return s, nil
}

// Objects returns a view of the stored objects, for authorizers and admission plugins. It is empty until Run has filled
// the cache.
func (s *Server) Objects() api.Objects { return s.cache.Objects() }

// Wire lets f complete the options of a server whose authorizers and plugins need Objects. It must be called before
// Run.
func (s *Server) Wire(f func(o *Options)) { f(&s.o) }

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
		case <-s.furnished: // until then the processors have more urgent work
			s.fields.warm()
		case <-ctx.Done():
		}
		return nil
	})
	g.Go(func() error { return s.cache.Run(reading) })
	g.Go(func() error { return s.bootstrap(ctx) })
	g.Go(func() error { return s.watchStore(ctx) })
	g.Go(func() error { return s.compact(ctx) })
	g.Go(func() error { return s.extend(ctx) })
	g.Go(func() error { return s.aggregate(ctx) })
	if s.o.AdvertiseAddress != "" {
		g.Go(func() error { return s.advertise(ctx) })
	}
	if s.services != nil {
		g.Go(func() error { return s.repairAddresses(ctx) })
	}
	for _, task := range s.o.Tasks {
		g.Go(func() error { return task(ctx, s) })
	}
	g.Go(func() error {
		<-ctx.Done()
		// Watches end, so that the shutdown does not wait for them.
		s.endStream.Do(func() { close(s.shutdown) })
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
