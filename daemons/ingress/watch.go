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
	engine         *proxy.Engine
	sockets        *entrySockets
	cfg            config.Ingress
	mu             sync.Mutex
	routeBuilder   *route.Builder
	gatewayBuilder *gateway.Builder
	table          *route.Table                                        // the routes of Ingresses that the engine uses
	slices         map[route.Key]map[string]*discoveryv1.EndpointSlice // by Service, then by name
	objects        map[route.Key]*networkingv1.Ingress
	classes        map[string]*networkingv1.IngressClass
	loadBalancers  map[route.Key]*corev1.Service // Services of type LoadBalancer
	served         map[gateway.Entry]*gateway.Served
	removedSources map[route.Source]bool // former sources of Ingresses that may no longer be used
	needsSweep     bool                  // check all sources
	pendingStatus  map[route.Key]bool    // Ingresses whose status may have to change
	isAllPending   bool                  // the status of all Ingresses may have to change
	hasGatewayAPI  bool                  // the cluster has the Gateway API
	secrets        *secretWatcher        // nil before the first table
	tableChanged   chan struct{}         // the table must be rebuilt
	statusChanged  chan struct{}         // the status of Ingresses may have to change
}

// maxPendingStatus limits how many Ingresses are recorded individually.
const maxPendingStatus = 4096

func newWatch(cfg config.Ingress, engine *proxy.Engine, at *entrySockets) *watch {
	build := route.NewBuilder(route.Options{Policy: defaultPolicy(cfg), Targets: engine.Targets,
		Counter: engine.Counter})
	options := gateway.Options{
		Backends:    build.Backends,
		Certificate: build.Certificate,
		Policy:      defaultPolicy(cfg),
		Counter:     engine.Counter,
	}
	if cfg.GatewayAddresses == config.OfMachines {
		options.Shared = map[int]bool{cfg.HTTPPort: false, cfg.HTTPSPort: true}
	}
	return &watch{
		engine: engine, sockets: at, cfg: cfg, routeBuilder: build, gatewayBuilder: gateway.NewBuilder(options),
		served: map[gateway.Entry]*gateway.Served{},
		slices: map[route.Key]map[string]*discoveryv1.EndpointSlice{}, objects: map[route.Key]*networkingv1.Ingress{},
		classes: map[string]*networkingv1.IngressClass{}, loadBalancers: map[route.Key]*corev1.Service{},
		removedSources: map[route.Source]bool{}, pendingStatus: map[route.Key]bool{}, isAllPending: true,
		tableChanged: make(chan struct{}, 1), statusChanged: make(chan struct{}, 1),
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
		return informers.New(clients, informers.WithTransform(trimObject), informers.WithTweakListOptions(tweak))
	}
	all := factory(func(*metav1.ListOptions) {})
	ofServices := factory(func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName })
	var handled []cache.InformerSynced
	add := func(i cache.SharedIndexInformer, f func(o any, isGone bool)) error {
		handle := func(o any, isGone bool) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			w.mu.Lock()
			f(o, isGone)
			w.mu.Unlock()
			signal(w.tableChanged)
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
	err := errors.Join(add(informers.IngressClasses(all).Informer(), w.setClass),
		add(informers.Ingresses(all).Informer(), w.setIngress), add(informers.Services(all).Informer(), w.setService),
		add(informers.EndpointSlices(ofServices).Informer(), w.setSlice))
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
			gateways.watchWhenInstalled(follow, w, log, func() { close(first) })
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
	defer func() { stop(); w.secrets.wait() }()
	w.mu.Lock()
	w.buildTable(following)
	w.mu.Unlock()
	select {
	case <-w.secrets.whenAnswered():
	case <-ctx.Done():
		return nil
	}
	w.updateTable(following)
	w.sockets.closeUnused()
	ready()
	w.updateTables(ctx, following)
	return nil
}

// updateTables builds a new table after every change until ctx ends.
func (w *watch) updateTables(ctx, following context.Context) {
	again := time.NewTicker(resyncInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.tableChanged:
			w.updateTable(following)
		case <-again.C: // a port that another process used may be free now
			if w.sockets.hasFailed() {
				w.updateTable(following)
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

// updateTable passes the table of the current objects to the engine. Several changes result in one table.
func (w *watch) updateTable(ctx context.Context) {
	w.mu.Lock()
	next, news := w.buildTable(ctx)
	if next != w.table || len(news) > 0 {
		w.table = next
		w.removeCounters(len(news) > 0)
		w.sockets.setTables(next, w.served)
	}
	w.sockets.openSockets(w.served, w.machinePorts())
	w.mu.Unlock()
	signal(w.statusChanged)
}

// buildTable builds what to serve from the current objects, and updates the set of followed Secrets. The caller holds
// mu.
func (w *watch) buildTable(ctx context.Context) (next *route.Table, news map[gateway.Entry]*gateway.Served) {
	next, news = w.routeBuilder.Table(), w.gatewayBuilder.Update()
	for entry, served := range news {
		if w.served[entry] = served; served == nil {
			delete(w.served, entry)
		}
	}
	for _, touched := range []map[route.Key]struct{}{w.routeBuilder.ChangedSecrets(),
		w.gatewayBuilder.ChangedSecrets()} {
		for key := range touched {
			switch wanted := w.routeBuilder.IsReferenced(key) || w.gatewayBuilder.IsReferenced(key); {
			case w.secrets == nil:
			case wanted:
				w.secrets.follow(ctx, key)
			default:
				w.secrets.unfollow(key)
				w.routeBuilder.SetSecret(key, nil)
			}
		}
	}
	return next, news
}

// removeCounters removes the counters of sources that no longer exist. The caller holds mu.
func (w *watch) removeCounters(all bool) {
	stays := func(s route.Source) bool { return w.routeBuilder.HasSource(s) || w.gatewayBuilder.HasSource(s) }
	if all || w.needsSweep {
		w.engine.RemoveCounters(stays)
	} else {
		for s := range w.removedSources {
			if !stays(s) {
				w.engine.RemoveCounter(s)
			}
		}
	}
	w.needsSweep = false
	clear(w.removedSources)
}

func (w *watch) setClass(o any, isGone bool) {
	c, ok := o.(*networkingv1.IngressClass)
	if !ok {
		return
	}
	w.needsSweep, w.isAllPending = true, true
	if isGone {
		delete(w.classes, c.Name)
		w.routeBuilder.SetClass(c.Name, nil)
		return
	}
	w.classes[c.Name] = c
	w.routeBuilder.SetClass(c.Name, c)
}

func (w *watch) setIngress(o any, isGone bool) {
	in, ok := o.(*networkingv1.Ingress)
	if !ok {
		return
	}
	key := route.Key{Namespace: in.Namespace, Name: in.Name}
	before := w.objects[key]
	if w.pendingStatus[key] = true; len(w.pendingStatus) > maxPendingStatus {
		// this proxy is not the leader, so nothing takes them
		clear(w.pendingStatus)
		w.isAllPending = true
	}
	for _, s := range w.routeBuilder.Sources(key) {
		w.removedSources[s] = true
	}
	if isGone {
		delete(w.objects, key)
		w.routeBuilder.SetIngress(key, nil)
		return
	}
	w.objects[key] = in
	// Ignore changes of only the status, because they change no route and the leader writes many.
	if before == nil || before.UID != in.UID || before.Generation != in.Generation ||
		!equalMaps(before.Annotations, in.Annotations) {
		w.routeBuilder.SetIngress(key, in)
	}
}

func equalMaps(a, b map[string]string) bool {
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

func (w *watch) setService(o any, isGone bool) {
	s, ok := o.(*corev1.Service)
	if !ok {
		return
	}
	key := route.Key{Namespace: s.Namespace, Name: s.Name}
	w.gatewayBuilder.ServiceChanged(key)
	if before := w.routeBuilder.Backends.Service(key); before != nil && !isGone && before.Spec.Type != s.Spec.Type ||
		before == nil && s.Spec.Type == corev1.ServiceTypeExternalName {
		w.isAllPending = true // the status of the Ingresses that refer to it may change
	}
	if isGone {
		delete(w.loadBalancers, key)
		w.routeBuilder.SetService(key, nil)
		return
	}
	if delete(w.loadBalancers, key); s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		w.loadBalancers[key] = s
	}
	w.routeBuilder.SetService(key, s)
}

func (w *watch) setSlice(o any, isGone bool) {
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
	if of[s.Name] = s; isGone {
		delete(of, s.Name)
	}
	if len(of) == 0 {
		delete(w.slices, key)
	}
	list := make([]*discoveryv1.EndpointSlice, 0, len(of))
	for _, one := range of {
		list = append(list, one)
	}
	w.routeBuilder.SetSlices(key, list)
}

// setSecret stores a Secret, or removes it if s is nil. ctx ends, under mu, when the Secret is no longer needed.
func (w *watch) setSecret(ctx context.Context, key route.Key, s *corev1.Secret) {
	w.mu.Lock()
	if ctx.Err() != nil {
		w.mu.Unlock()
		return
	}
	w.routeBuilder.SetSecret(key, s)
	for _, in := range w.routeBuilder.UsersOf(key) {
		w.pendingStatus[in] = true
	}
	w.gatewayBuilder.SecretChanged(key)
	w.mu.Unlock()
	signal(w.tableChanged)
}

// trimObject copies an object with only the fields that the daemon reads.
func trimObject(o any) (any, error) {
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
