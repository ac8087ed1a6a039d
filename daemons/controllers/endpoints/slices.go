package endpoints

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type sliceController struct {
	loop.Context
	loop.Loop
	services corelisters.ServiceLister
	pods     corelisters.PodLister
	nodes    corelisters.NodeLister
	slices   discoverylisters.EndpointSliceLister
	expect   loop.Expectations
	changes  lastChanges
	counts   counts

	mu sync.Mutex
	// by service key; the address types whose hints follow the zones' CPU
	balanced map[string]sets.Set[discoveryv1.AddressType]
}

// NewSlices returns the controller that manages the EndpointSlices of every Service with a selector.
func NewSlices(c loop.Context) loop.Controller {
	services, pods, nodes := informers.Services(c.Informers), informers.Pods(c.Informers), informers.Nodes(c.Informers)
	sliceInformer := informers.EndpointSlices(c.Informers)
	s := &sliceController{
		Context:  c,
		services: services.Lister(),
		pods:     pods.Lister(),
		nodes:    nodes.Lister(),
		slices:   sliceInformer.Lister(),
		expect:   loop.Expectations{Now: c.Now},
	}
	s.counts = newCounts(c, s.services, s.slices)
	s.Loop = loop.Loop{
		Name:            "endpointslice",
		QueueMetricName: "endpoint_slice",
		Context:         c,
		Sync:            s.sync,
		Synced: []cache.InformerSynced{
			services.Informer().HasSynced, pods.Informer().HasSynced, nodes.Informer().HasSynced,
			sliceInformer.Informer().HasSynced},
	}
	enqueueOnChange(c, services.Informer(), pods.Informer(), s.Add)
	c.OnChange(nodes.Informer(), s.nodeChanged)
	EnqueueOnSlices(c, sliceInformer.Informer(), discoveryv1.LabelServiceName, managedBy, &s.expect, s.Queue().Add)
	return s
}

// EnqueueOnSlices calls wake for every changed slice of one manager. The key is the slice's namespace and the value of
// the label named of, which names the owner, mostly a service. It also reports new slices to expect. A slice that
// changes its manager or owner wakes both the old and the new one.
func EnqueueOnSlices(
	c loop.Context,
	informer cache.SharedIndexInformer,
	of, manager string,
	expect *loop.Expectations,
	wake func(key string),
) {
	c.OnChange(informer, func(old, obj any) {
		for _, o := range []any{old, obj} {
			slice, ok := o.(*discoveryv1.EndpointSlice)
			if !ok || slice.Labels[discoveryv1.LabelManagedBy] != manager || slice.Labels[of] == "" {
				continue
			}
			key := slice.Namespace + "/" + slice.Labels[of]
			if old == nil {
				expect.Created(key)
			}
			wake(key)
		}
	})
}

// nodeChanged wakes the services whose slices depend on the node: all services if it has moved to another zone, and
// those balanced by the zones' CPU if that has changed.
func (s *sliceController) nodeChanged(old, obj any) {
	before, _ := old.(*corev1.Node)
	after, _ := obj.(*corev1.Node)
	moved := before != nil && after != nil &&
		before.Labels[corev1.LabelTopologyZone] != after.Labels[corev1.LabelTopologyZone]
	if !moved && cpuOf(before) == cpuOf(after) {
		return
	}
	all, err := s.services.List(labels.Everything())
	if err != nil {
		return
	}
	for _, service := range all {
		if len(service.Spec.Selector) > 0 && (moved || wantsBalancedHints(service)) {
			s.Add(service)
		}
	}
}

func (s *sliceController) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	service, err := s.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		s.expect.Delete(key)
		s.changes.delete(key)
		s.recordHinted(key, nil)
		return nil // the garbage collector deletes the slices
	} else if err != nil {
		return err
	}
	if len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName ||
		service.DeletionTimestamp != nil {
		return nil
	}
	if !s.expect.IsMet(key) {
		return nil // the cache does not show one of our slices yet; its event will queue the service again
	}
	pods, err := s.pods.Pods(namespace).List(labels.SelectorFromSet(service.Spec.Selector))
	if err != nil {
		return err
	}
	existing, err := s.slices.EndpointSlices(namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: managedBy}))
	if err != nil {
		return err
	}
	topology := Topology{Zone: s.zone, Balanced: s.lastHinted(key)}
	if wantsBalancedHints(service) {
		nodes, err := s.nodes.List(labels.Everything())
		if err != nil {
			return err
		}
		topology.ZoneCPU = zoneCPU(nodes)
	}
	plan := Plan(service, pods, existing, topology)
	when, seen := s.changes.since(key, service, pods)
	for _, list := range [][]*discoveryv1.EndpointSlice{plan.Create, plan.Update} {
		for _, slice := range list {
			setTriggerTime(&slice.ObjectMeta, when)
		}
	}
	err = plan.Write(ctx, s.Client, &s.expect, key)
	s.counts.observeWrites(service, plan, err)
	if err != nil {
		if !apierrors.IsConflict(err) {
			s.Events.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
				"Error updating Endpoint Slices for Service %s/%s: %v", namespace, name, err)
		}
		return err
	}
	s.changes.record(key, seen)
	s.recordHinted(key, plan.Balanced)
	for _, n := range plan.Events {
		s.Events.Event(service, n.Type, n.Reason, n.Message)
	}
	return nil
}

func (s *sliceController) zone(node string) string {
	n, err := s.nodes.Get(node)
	if err != nil {
		return ""
	}
	return n.Labels[corev1.LabelTopologyZone]
}

func (s *sliceController) lastHinted(key string) sets.Set[discoveryv1.AddressType] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.balanced[key]
}

func (s *sliceController) recordHinted(key string, kinds sets.Set[discoveryv1.AddressType]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(kinds) == 0 {
		delete(s.balanced, key)
		return
	}
	if s.balanced == nil {
		s.balanced = map[string]sets.Set[discoveryv1.AddressType]{}
	}
	s.balanced[key] = kinds
}
