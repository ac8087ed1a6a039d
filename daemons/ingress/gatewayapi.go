package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"clusterctl/daemons/client"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/ingress/route"
	"clusterctl/kube/discovery"
	"clusterctl/kube/kubernetes"
)

// gatewayAPI reads and writes the objects of the Gateway API, if it is installed.
type gatewayAPI struct {
	rest        rest.Interface
	core        kubernetes.Interface
	discovery   discovery.Interface
	definitions metadata.Interface
}

func newGatewayAPI(cfg *rest.Config) (*gatewayAPI, error) {
	kinds := runtime.NewScheme()
	if err := gatewayv1.Install(kinds); err != nil {
		return nil, fmt.Errorf("take in the kinds of Gateway API: %w", err)
	}
	metav1.AddToGroupVersion(kinds, metav1.SchemeGroupVersion)
	c := rest.CopyConfig(cfg)
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &gatewayv1.SchemeGroupVersion, "/apis",
		serializer.NewCodecFactory(kinds).
			WithoutConversion()
	c.ContentConfig.ContentType, c.ContentConfig.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("set up the client of Gateway API: %w", err)
	}
	definitions, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up the client of definitions: %w", err)
	}
	core, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up the API client: %w", err)
	}
	return &gatewayAPI{rest: client, core: core, discovery: core.Discovery(), definitions: definitions}, nil
}

// requiredResources are the resources that must be installed before they are watched.
var requiredResources = []string{"gatewayclasses", "gateways", "httproutes"}

// servedResources returns the resources of the Gateway API that the API server serves.
func (g *gatewayAPI) servedResources() ([]string, error) {
	list, err := g.discovery.ServerResourcesForGroupVersion(gatewayv1.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the kinds of Gateway API: %w", err)
	}
	var names []string
	for _, r := range list.APIResources {
		names = append(names, r.Name)
	}
	return names, nil
}

// watchWhenInstalled waits until the Gateway API is installed, and then watches it until ctx ends. It calls first once
// it knows that the API is not installed, or all objects are known.
func (g *gatewayAPI) watchWhenInstalled(ctx context.Context, w *watch, log *slog.Logger, first func()) {
	logged := false
	logOnce := func() {
		if !logged {
			logged = true
			first()
		}
	}
	changed := make(chan struct{}, 1)
	kinds := schema.GroupVersionResource{
		Group:    "apiextensions.k8s.io",
		Version:  "v1",
		Resource: "customresourcedefinitions",
	}
	definitions := informers.Metadata(g.definitions, kinds, nil)
	of := func(o any) {
		if m, ok := o.(*metav1.PartialObjectMetadata); ok && strings.HasSuffix(m.Name, "."+gatewayv1.GroupName) {
			signal(changed)
		}
	}
	if _, err := definitions.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: of,
		UpdateFunc: func(_, o any) { of(o) }}); err != nil {
		log.Error("watch definitions", "err", err)
		return
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		definitions.RunWithContext(ctx)
	}()
	defer func() { <-stopped }()
	wait := time.Second
	for ctx.Err() == nil {
		names, err := g.servedResources()
		missing := slices.ContainsFunc(requiredResources, func(n string) bool { return !slices.Contains(names, n) })
		if err == nil && !missing {
			g.watch(ctx, w, log, slices.Contains(names, "referencegrants"), logOnce)
			return
		}
		again := (<-chan time.Time)(nil)
		if err != nil {
			log.Warn("look for Gateway API", "err", err)
			again = time.After(wait)
			wait = min(2*wait, 30*time.Second)
		} else {
			wait = time.Second
			logOnce()
		}
		select {
		case <-ctx.Done():
		// A new definition is not served at once. When it is served, its status changes, which is another change.
		case <-changed:
		case <-again:
		}
	}
}

// watch watches Gateways and the objects that they depend on.
func (g *gatewayAPI) watch(ctx context.Context, w *watch, log *slog.Logger, grants bool, first func()) {
	var all []cache.SharedIndexInformer
	var synced []cache.InformerSynced
	add := func(i cache.SharedIndexInformer, set func(key route.Key, o any)) error {
		handle := func(o any, isGone bool) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			m, ok := o.(metav1.Object)
			if !ok {
				return
			}
			if isGone {
				o = nil
			}
			w.mu.Lock()
			set(route.Key{Namespace: m.GetNamespace(), Name: m.GetName()}, o)
			w.mu.Unlock()
			signal(w.tableChanged)
		}
		r, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { handle(o, false) }, UpdateFunc: func(_, o any) { handle(o, false) },
			DeleteFunc: func(o any) { handle(o, true) },
		})
		if err != nil {
			return err
		}
		all, synced = append(all, i), append(synced, r.HasSynced)
		return i.SetTransform(client.WithoutManagers)
	}
	of := func(client rest.Interface, resource string, kind runtime.Object) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll,
			fields.Everything()), kind, 0, cache.Indexers{})
	}
	b := w.gatewayBuilder
	err := errors.Join(
		add(of(g.rest, "gatewayclasses", &gatewayv1.GatewayClass{}),
			func(key route.Key, o any) { c, _ := o.(*gatewayv1.GatewayClass); b.SetClass(key.Name, c) }),
		add(of(g.rest, "gateways", &gatewayv1.Gateway{}),
			func(key route.Key, o any) { c, _ := o.(*gatewayv1.Gateway); b.SetGateway(key, c) }),
		add(of(g.rest, "httproutes", &gatewayv1.HTTPRoute{}),
			func(key route.Key, o any) { c, _ := o.(*gatewayv1.HTTPRoute); b.SetRoute(key, c) }),
		add(of(g.core.CoreV1().RESTClient(), "namespaces", &corev1.Namespace{}), func(key route.Key, o any) {
			var labels map[string]string // nil deletes the namespace
			if n, ok := o.(*corev1.Namespace); ok {
				labels = map[string]string{}
				maps.Copy(labels, n.Labels)
			}
			b.SetNamespace(key.Name, labels)
		}),
	)
	if grants {
		err = errors.Join(err, add(of(g.rest, "referencegrants", &gatewayv1.ReferenceGrant{}),
			func(key route.Key, o any) { c, _ := o.(*gatewayv1.ReferenceGrant); b.SetGrant(key, c) }))
	} else {
		log.Warn("ReferenceGrants are not served as v1: nothing may be named across namespaces")
	}
	if err != nil {
		log.Error("watch Gateways", "err", err)
		return
	}
	done := make(chan struct{}, len(all))
	for _, i := range all {
		go func() {
			i.RunWithContext(ctx)
			done <- struct{}{}
		}()
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		log.Info("following Gateways")
		w.mu.Lock()
		w.hasGatewayAPI = true
		w.mu.Unlock()
		signal(w.tableChanged)
		first()
	}
	for range all {
		<-done
	}
}

// writeStatus writes the status of an object. It returns no error if the object was deleted or has changed, because the
// watch delivers the new state.
func (g *gatewayAPI) writeStatus(ctx context.Context, resource string, object interface {
	runtime.Object
	metav1.Object
}) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := g.rest.Put().
		NamespaceIfScoped(object.GetNamespace(), object.GetNamespace() != "").
		Resource(resource).
		Name(object.GetName()).
		SubResource("status").
		Body(object).
		Do(ctx).
		Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
