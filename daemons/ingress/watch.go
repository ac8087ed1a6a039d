package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/ingress/proxy"
	"clusterctl/daemons/ingress/route"
	"clusterctl/daemons/ingress/route/gateway"
	"clusterctl/kube/kubernetes"
)

// watch keeps the engine's tables up to date with the API's objects.
type watch struct {
	engine       *proxy.Engine
	fronts       *fronts
	cfg          config.Ingress
	mu           sync.Mutex
	build        *route.Builder
	gateway      *gateway.Builder
	table        *route.Table                                        // the routes of Ingresses that the engine uses
	slices       map[route.Key]map[string]*discoveryv1.EndpointSlice // by Service, then by name
	objects      map[route.Key]*networkingv1.Ingress
	classes      map[string]*networkingv1.IngressClass
	publish      map[route.Key]*corev1.Service // Services of type LoadBalancer
	served       map[gateway.Entry]*gateway.Served
	left         map[route.Source]bool // former sources of Ingresses that may no longer be used
	swept        bool                  // check all sources
	untold       map[route.Key]bool    // Ingresses whose status may have to change
	telling      bool                  // the status of all Ingresses may have to change
	follows      bool                  // the cluster has the Gateway API
	certificates *secrets              // nil before the first table
	changed      chan struct{}         // the table must be rebuilt
	news         chan struct{}         // the status of Ingresses may have to change
}

// maxUntold limits how many Ingresses are recorded individually.
const maxUntold = 4096

func newWatch(cfg config.Ingress, engine *proxy.Engine, at *fronts) *watch {
	build := route.NewBuilder(route.Options{Policy: policyOf(cfg), Targets: engine.Targets, Counter: engine.Counter})
	options := gateway.Options{
		Backends:    build.Backends,
		Certificate: build.Certificate,
		Policy:      policyOf(cfg),
		Counter:     engine.Counter,
	}
	if cfg.GatewayAddresses == config.OfMachines {
		options.Shared = map[int]bool{cfg.HTTPPort: false, cfg.HTTPSPort: true}
	}
	return &watch{
		engine: engine, fronts: at, cfg: cfg, build: build, gateway: gateway.NewBuilder(options),
		served: map[gateway.Entry]*gateway.Served{},
		slices: map[route.Key]map[string]*discoveryv1.EndpointSlice{}, objects: map[route.Key]*networkingv1.Ingress{},
		classes: map[string]*networkingv1.IngressClass{}, publish: map[route.Key]*corev1.Service{},
		left: map[route.Source]bool{}, untold: map[route.Key]bool{}, telling: true,
		changed: make(chan struct{}, 1), news: make(chan struct{}, 1),
	}
}

// run watches the API until ctx ends. It calls ready when the engine has the first complete table.
func (w *watch) run(
	ctx context.Context,
	clients kubernetes.Interface,
	gateways *gatewayAPI,
	log *slog.Logger,
	ready func(),
) error {
	factory := func(tweak func(*metav1.ListOptions)) *informers.Factory {
		return informers.New(clients, informers.WithTransform(lean), informers.WithTweakListOptions(tweak))
	}
	all := factory(func(*metav1.ListOptions) {})
	ofServices := factory(func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName })
	var handled []cache.InformerSynced
	add := func(i cache.SharedIndexInformer, f func(o any, gone bool)) error {
		handle := func(o any, gone bool) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			w.mu.Lock()
			f(o, gone)
			w.mu.Unlock()
			signal(w.changed)
		}
		r, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { handle(o, false) }, UpdateFunc: func(_, o any) { handle(o, false) },
			DeleteFunc: func(o any) { handle(o, true) },
		})
		if err == nil {
			handled = append(handled, r.HasSynced)
		}
		return err
	}
	err := errors.Join(
		add(informers.IngressClasses(all).Informer(), w.class),
		add(informers.Ingresses(all).Informer(), w.ingress),
		add(informers.Services(all).Informer(), w.service),
		add(informers.EndpointSlices(ofServices).Informer(), w.slice))
	if err != nil {
		return fmt.Errorf("watch Ingresses: %w", err)
	}
	for _, f := range []*informers.Factory{all, ofServices} {
		f.StartWithContext(ctx)
		defer f.Shutdown()
	}
	if !cache.WaitForCacheSync(ctx.Done(), handled...) {
		return nil
	}
	if gateways != nil {
		follow, stop := context.WithCancel(ctx)
		first, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			gateways.follow(follow, w, log, func() { close(first) })
		}()
		defer func() { stop(); <-done }()
		select {
		case <-first:
		case <-ctx.Done():
			return nil
		}
	}
	// Build the first table only after the certificates that Ingresses and Gateways refer to have been read.
	following, stop := context.WithCancel(ctx)
	defer func() { stop(); w.certificates.wait() }()
	w.mu.Lock()
	w.work(following)
	w.mu.Unlock()
	select {
	case <-w.certificates.waiting():
	case <-ctx.Done():
		return nil
	}
	w.make(following)
	w.fronts.forgetKept()
	ready()
	again := time.NewTicker(lookTime)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
			w.make(following)
		case <-again.C: // a port that another process used may be free now
			if w.fronts.lacking() {
				w.make(following)
			}
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// make passes the table of the current objects to the engine. Several changes result in one table.
func (w *watch) make(ctx context.Context) {
	w.mu.Lock()
	next, news := w.work(ctx)
	if next != w.table || len(news) > 0 {
		w.table = next
		w.forget(len(news) > 0)
		w.fronts.serve(next, w.served)
	}
	w.fronts.place(w.served, w.machinePorts())
	w.mu.Unlock()
	signal(w.news)
}

// work builds what to serve from the current objects, and updates the set of followed Secrets. The caller holds mu.
func (w *watch) work(ctx context.Context) (next *route.Table, news map[gateway.Entry]*gateway.Served) {
	next, news = w.build.Table(), w.gateway.Update()
	for entry, served := range news {
		if w.served[entry] = served; served == nil {
			delete(w.served, entry)
		}
	}
	for _, touched := range []map[route.Key]struct{}{w.build.Touched(), w.gateway.Touched()} {
		for key := range touched {
			switch wanted := w.build.Refers(key) || w.gateway.Refers(key); {
			case w.certificates == nil:
			case wanted:
				w.certificates.follow(ctx, key)
			default:
				w.certificates.forget(key)
				w.build.SetSecret(key, nil)
			}
		}
	}
	return next, news
}

// forget removes the counters of sources that no longer exist. The caller holds mu.
func (w *watch) forget(all bool) {
	stays := func(s route.Source) bool { return w.build.Has(s) || w.gateway.Has(s) }
	if all || w.swept {
		w.engine.Forget(stays)
	} else {
		for s := range w.left {
			if !stays(s) {
				w.engine.Drop(s)
			}
		}
	}
	w.swept = false
	clear(w.left)
}

func (w *watch) class(o any, gone bool) {
	c, ok := o.(*networkingv1.IngressClass)
	if !ok {
		return
	}
	w.swept, w.telling = true, true
	if gone {
		delete(w.classes, c.Name)
		w.build.SetClass(c.Name, nil)
		return
	}
	w.classes[c.Name] = c
	w.build.SetClass(c.Name, c)
}

func (w *watch) ingress(o any, gone bool) {
	in, ok := o.(*networkingv1.Ingress)
	if !ok {
		return
	}
	key := route.Key{Namespace: in.Namespace, Name: in.Name}
	before := w.objects[key]
	if w.untold[key] = true; len(w.untold) > maxUntold { // this proxy is not the leader, so nothing takes them
		clear(w.untold)
		w.telling = true
	}
	for _, s := range w.build.Sources(key) {
		w.left[s] = true
	}
	if gone {
		delete(w.objects, key)
		w.build.SetIngress(key, nil)
		return
	}
	w.objects[key] = in
	// Ignore changes of only the status, because they change no route and the leader writes many.
	if before == nil || before.UID != in.UID || before.Generation != in.Generation ||
		!same(before.Annotations, in.Annotations) {
		w.build.SetIngress(key, in)
	}
}

func same(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if other, ok := b[k]; !ok || other != v {
			return false
		}
	}
	return true
}

func (w *watch) service(o any, gone bool) {
	s, ok := o.(*corev1.Service)
	if !ok {
		return
	}
	key := route.Key{Namespace: s.Namespace, Name: s.Name}
	w.gateway.ServiceChanged(key)
	if was := w.build.Backends.Service(key); was != nil && !gone && was.Spec.Type != s.Spec.Type ||
		was == nil && s.Spec.Type == corev1.ServiceTypeExternalName {
		w.telling = true // the status of the Ingresses that refer to it may change
	}
	if gone {
		delete(w.publish, key)
		w.build.SetService(key, nil)
		return
	}
	if delete(w.publish, key); s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		w.publish[key] = s
	}
	w.build.SetService(key, s)
}

func (w *watch) slice(o any, gone bool) {
	s, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	key := route.Key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	of := w.slices[key]
	if of == nil {
		of = map[string]*discoveryv1.EndpointSlice{}
		w.slices[key] = of
	}
	if of[s.Name] = s; gone {
		delete(of, s.Name)
	}
	if len(of) == 0 {
		delete(w.slices, key)
	}
	list := make([]*discoveryv1.EndpointSlice, 0, len(of))
	for _, one := range of {
		list = append(list, one)
	}
	w.build.SetSlices(key, list)
}

// secret stores a Secret, or removes it if s is nil. ctx ends, under mu, when the Secret is no longer needed.
func (w *watch) secret(ctx context.Context, key route.Key, s *corev1.Secret) {
	w.mu.Lock()
	if ctx.Err() != nil {
		w.mu.Unlock()
		return
	}
	w.build.SetSecret(key, s)
	for _, in := range w.build.UsersOf(key) {
		w.untold[in] = true
	}
	w.gateway.SecretChanged(key)
	w.mu.Unlock()
	signal(w.changed)
}

// lean copies an object with only the fields that the daemon reads.
func lean(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Service:
		c := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion,
				UID: o.UID},
			Spec:   corev1.ServiceSpec{Type: o.Spec.Type, Ports: o.Spec.Ports, IPFamilies: o.Spec.IPFamilies},
			Status: o.Status,
		}
		if of := o.Labels[gatewayLabel]; of != "" {
			c.Labels = map[string]string{gatewayLabel: of}
		}
		return c, nil
	case *discoveryv1.EndpointSlice:
		c := *o
		c.ManagedFields, c.Annotations = nil, nil
		return &c, nil
	case *networkingv1.Ingress:
		c := *o
		c.ManagedFields = nil
		return &c, nil
	}
	return o, nil
}
