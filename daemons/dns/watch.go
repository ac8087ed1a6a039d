package dns

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/dns/zone"
	"clusterctl/kube/kubernetes"
)

const serviceIndex = "service"

// watchCluster keeps the zone up to date with the API's services, endpoints and namespaces until ctx ends. It calls
// ready when all are known.
func watchCluster(ctx context.Context, clients kubernetes.Interface, names *zone.Zone, ready func()) error {
	factory := informers.New(clients, informers.WithTransform(trimObject))
	services := informers.Services(factory)
	// Skip slices without a service: with network policies there are many, and they have no names.
	ofServices := informers.New(clients, informers.WithTransform(trimObject),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName }))
	slices := informers.EndpointSlices(ofServices).Informer()
	namespaces := informers.Namespaces(factory).Informer()
	if err := slices.AddIndexers(cache.Indexers{serviceIndex: func(o any) ([]string, error) {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok {
			return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
		}
		return nil, nil
	}}); err != nil {
		return fmt.Errorf("index endpoint slices: %w", err)
	}
	update := func(k zone.Key) {
		s, err := services.Lister().Services(k.Namespace).Get(k.Name)
		if err != nil {
			names.Set(k, nil)
			return
		}
		found, _ := slices.GetIndexer().ByIndex(serviceIndex, k.Namespace+"/"+k.Name)
		eps := make([]*discoveryv1.EndpointSlice, 0, len(found))
		for _, o := range found {
			eps = append(eps, o.(*discoveryv1.EndpointSlice))
		}
		names.Set(k, zone.NewService(names.Domain(), s, eps))
	}
	on := serialHandlers()
	var handled []cache.InformerSynced
	add := func(i cache.SharedIndexInformer, h cache.ResourceEventHandler) error {
		r, err := i.AddEventHandler(h)
		if err == nil {
			handled = append(handled, r.HasSynced)
		}
		return err
	}
	err := errors.Join(
		add(services.Informer(), on(func(o any) {
			if s, ok := o.(*corev1.Service); ok {
				update(zone.Key{Namespace: s.Namespace, Name: s.Name})
			}
		})),
		add(slices, on(func(o any) {
			if s, ok := o.(*discoveryv1.EndpointSlice); ok && s.Labels[discoveryv1.LabelServiceName] != "" {
				update(zone.Key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
			}
		})),
		add(namespaces, on(func(o any) {
			if n, ok := o.(*corev1.Namespace); ok {
				_, exists, _ := namespaces.GetStore().GetByKey(n.Name)
				names.SetNamespace(n.Name, exists)
			}
		})))
	if err != nil {
		return fmt.Errorf("watch services: %w", err)
	}
	for _, f := range []*informers.Factory{factory, ofServices} {
		f.StartWithContext(ctx)
		defer f.Shutdown()
	}
	if cache.WaitForCacheSync(ctx.Done(), handled...) {
		ready()
	}
	<-ctx.Done()
	return nil
}

// serialHandlers returns a function that makes event handlers of functions. Only one of them runs at a time, because
// the handlers of services and of slices compute the same record.
func serialHandlers() func(f func(any)) cache.ResourceEventHandlerFuncs {
	serial := make(chan struct{}, 1)
	return func(f func(any)) cache.ResourceEventHandlerFuncs {
		handle := func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			serial <- struct{}{}
			defer func() { <-serial }()
			f(o)
		}
		return cache.ResourceEventHandlerFuncs{
			AddFunc:    handle,
			UpdateFunc: func(_, o any) { handle(o) },
			DeleteFunc: handle,
		}
	}
}

// trimObject removes the fields of objects that the daemon does not read. It copies the object before changing it.
func trimObject(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Service:
		c := *o
		c.ManagedFields, c.Annotations = nil, nil
		if v, ok := o.Annotations[zone.NotReadyAnnotation]; ok {
			c.Annotations = map[string]string{zone.NotReadyAnnotation: v}
		}
		return &c, nil
	case *discoveryv1.EndpointSlice:
		c := *o
		c.ManagedFields, c.Annotations = nil, nil
		return &c, nil
	case *corev1.Namespace:
		c := *o
		c.ManagedFields, c.Annotations = nil, nil
		return &c, nil
	}
	return o, nil
}
