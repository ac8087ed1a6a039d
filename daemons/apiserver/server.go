// Package apiserver serves the Kubernetes API: it reads what a request asks for, sends
// it through a visible list of stages, answers reads from the watch cache and puts
// writes into the store. What kinds there are is package kinds' business; who asks
// and who may, and what admission thinks, is that of the packages below this one.
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

// Server is an API server. It answers requests as soon as its cache is filled, which
// Run does.
type Server struct {
	o      Options
	log    *slog.Logger
	store  store.Store // counted
	cache  *cache.Cache
	scheme *runtime.Scheme

	serving   atomic.Pointer[offer]
	described *openapi.Handler // of the kinds that are always there
	own       http.Handler     // health and metrics
	pages     http.Handler     // what the server tells of itself
	services  *alloc.Services  // nil: no addresses are handed out
	observed  *observed
	servers   *cache.Names // the addresses of servers
	followed  followed
	shown     followed // or have been tried
	offering  offering
	inFlight  chan struct{}
	ledgers   turns // of quotas, by namespace

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

// Objects is a view of what is stored, for authorizers and admission plugins. It is
// empty until Run has filled the cache.
func (s *Server) Objects() api.Objects { return s.cache.Objects() }

// Wire completes a server whose authorizers and plugins need its view of objects. It
// must be called before Run, if at all.
func (s *Server) Wire(f func(o *Options)) { f(&s.o) }

// Run keeps the cache current and does what the server has to do by itself, until ctx
// ends.
func (s *Server) Run(ctx context.Context) error { return s.RunUntil(ctx, ctx) }

// RunUntil is Run, and keeps what answers are made from current until drained ends, too: a read that has come before
// the end is answered only when the cache has seen all that was written before it.
func (s *Server) RunUntil(asked, drained context.Context) error {
	reading, stop := context.WithCancel(drained)
	defer stop()
	g, ctx := errgroup.WithContext(asked)
	context.AfterFunc(ctx, func() {
		if asked.Err() == nil {
			stop() // something of it has failed: nothing more is answered well
		}
	})
	g.Go(func() error {
		select {
		case <-s.furnished: // until then the processors have better to do
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
		// Watches end, so that a stop does not wait for them.
		s.endStream.Do(func() { close(s.shutdown) })
		return nil
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// newScheme knows the kinds that are served, under every group version.
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
