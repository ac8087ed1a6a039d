package endpoints

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
)

const (
	managedBy = "endpointslice-controller.k8s.io"
	// sliceSize is how many endpoints one slice holds at most, upstream's default.
	sliceSize = 100
)

type sliceController struct {
	loop.Context
	loop.Loop
	services corelisters.ServiceLister
	pods     corelisters.PodLister
	nodes    corelisters.NodeLister
	slices   discoverylisters.EndpointSliceLister
	expect   loop.Expectations
}

// NewSlices returns the controller that keeps the EndpointSlices of every Service with
// a selector.
func NewSlices(c loop.Context) loop.Controller {
	services, pods, nodes := c.Informers.Core().V1().Services(), c.Informers.Core().V1().Pods(), c.Informers.Core().V1().Nodes()
	sliceInformer := c.Informers.Discovery().V1().EndpointSlices()
	s := &sliceController{Context: c, services: services.Lister(), pods: pods.Lister(), nodes: nodes.Lister(), slices: sliceInformer.Lister(), expect: loop.Expectations{Now: c.Now}}
	s.Loop = loop.Loop{Name: "endpointslice", Log: c.Log, Sync: s.sync, Synced: []cache.InformerSynced{
		services.Informer().HasSynced, pods.Informer().HasSynced, nodes.Informer().HasSynced, sliceInformer.Informer().HasSynced}}
	wakeOnChange(services.Informer(), pods.Informer(), s.services, s.Add)
	loop.OnChange(sliceInformer.Informer(), func(old, obj any) {
		is := obj
		if is == nil {
			is = old
		}
		slice := is.(*discoveryv1.EndpointSlice)
		if slice.Labels[discoveryv1.LabelManagedBy] != managedBy {
			return
		}
		key := slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]
		if old == nil {
			s.expect.Created(key)
		}
		s.Queue().Add(key)
	})
	return s
}

func (s *sliceController) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	service, err := s.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		s.expect.Forget(key)
		return nil // the garbage collector takes the slices
	} else if err != nil {
		return err
	}
	if len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName || service.DeletionTimestamp != nil {
		return nil
	}
	if !s.expect.Met(key) {
		return nil // a slice of ours is still to be seen, and its event comes
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
	return s.write(ctx, key, service, Plan(service, pods, existing, s.zone))
}

func (s *sliceController) zone(node string) string {
	n, err := s.nodes.Get(node)
	if err != nil {
		return ""
	}
	return n.Labels[corev1.LabelTopologyZone]
}

func (s *sliceController) write(ctx context.Context, key string, service *corev1.Service, c Changes) error {
	client := s.Client.DiscoveryV1().EndpointSlices(service.Namespace)
	for _, slice := range c.Update {
		if _, err := client.Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
		}
	}
	for _, slice := range c.Create {
		s.expect.Expect(key, 1)
		if _, err := client.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			s.expect.Created(key)
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return nil
			}
			return fmt.Errorf("create an EndpointSlice of Service %s/%s: %w", service.Namespace, service.Name, err)
		}
	}
	for _, slice := range c.Delete {
		if err := client.Delete(ctx, slice.Name, loop.AsSeen(slice)); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
		}
	}
	return nil
}

// Changes is what has to be written.
type Changes struct {
	Create, Update []*discoveryv1.EndpointSlice
	Delete         []*discoveryv1.EndpointSlice
}

// Plan returns the writes that bring a service's slices to its pods. Endpoints stay in
// the slice that they are in, so that one pod's change is one slice's change.
func Plan(service *corev1.Service, pods []*corev1.Pod, existing []*discoveryv1.EndpointSlice, zone func(node string) string) Changes {
	type group struct {
		kind      discoveryv1.AddressType
		ports     []discoveryv1.EndpointPort
		endpoints map[string]discoveryv1.Endpoint // by pod UID
	}
	var groups []*group
	find := func(kind discoveryv1.AddressType, ports []discoveryv1.EndpointPort) *group {
		for _, g := range groups {
			if g.kind == kind && apiequality.Semantic.DeepEqual(g.ports, ports) {
				return g
			}
		}
		g := &group{kind, ports, map[string]discoveryv1.Endpoint{}}
		groups = append(groups, g)
		return g
	}
	for _, family := range families(service) {
		kind := discoveryv1.AddressType(family)
		for _, pod := range pods {
			if address := addressOf(pod, family); address != "" {
				find(kind, slicePorts(service, pod)).endpoints[string(pod.UID)] = endpoint(service, pod, address, zone)
			}
		}
		if len(pods) == 0 { // an empty slice says that there is no endpoint
			find(kind, nil)
		}
	}
	if len(groups) == 0 {
		for _, family := range families(service) {
			find(discoveryv1.AddressType(family), nil)
		}
	}

	var c Changes
	used := map[string]bool{}
	for _, g := range groups {
		var mine []*discoveryv1.EndpointSlice
		for _, slice := range existing {
			if slice.AddressType == g.kind && apiequality.Semantic.DeepEqual(slice.Ports, g.ports) && slice.DeletionTimestamp == nil {
				updated := slice.DeepCopy()
				updated.Labels = sliceLabels(service)
				updated.Endpoints = nil
				for _, e := range slice.Endpoints {
					uid := targetUID(e)
					if now, ok := g.endpoints[uid]; ok {
						updated.Endpoints = append(updated.Endpoints, now)
						delete(g.endpoints, uid)
					}
				}
				mine = append(mine, updated)
				used[slice.Name] = true
			}
		}
		rest := make([]discoveryv1.Endpoint, 0, len(g.endpoints))
		for _, e := range g.endpoints {
			rest = append(rest, e)
		}
		slices.SortFunc(rest, func(a, b discoveryv1.Endpoint) int { return cmp.Compare(a.Addresses[0], b.Addresses[0]) })
		// Fullest first: few slices change, and few are half empty.
		slices.SortStableFunc(mine, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(len(b.Endpoints), len(a.Endpoints)) })
		for _, slice := range mine {
			n := min(sliceSize-len(slice.Endpoints), len(rest))
			slice.Endpoints = append(slice.Endpoints, rest[:n]...)
			rest = rest[n:]
		}
		for len(rest) > 0 || len(mine) == 0 {
			n := min(sliceSize, len(rest))
			slice := newSlice(service, g.kind, g.ports)
			slice.Endpoints = rest[:n:n]
			rest = rest[n:]
			c.Create = append(c.Create, slice)
			if len(mine) == 0 {
				mine = append(mine, slice)
			}
		}
		kept := 0
		for _, slice := range mine {
			if slice.Name == "" {
				kept++
				continue
			}
			if len(slice.Endpoints) == 0 && (len(mine) > 1 && kept > 0 || len(c.Create) > 0) {
				c.Delete = append(c.Delete, slice)
				continue
			}
			kept++
			if !sameSlice(slice, existing) {
				c.Update = append(c.Update, slice)
			}
		}
	}
	for _, slice := range existing {
		if !used[slice.Name] && slice.DeletionTimestamp == nil {
			c.Delete = append(c.Delete, slice)
		}
	}
	return c
}

func sameSlice(slice *discoveryv1.EndpointSlice, existing []*discoveryv1.EndpointSlice) bool {
	for _, e := range existing {
		if e.Name == slice.Name {
			return apiequality.Semantic.DeepEqual(e.Endpoints, slice.Endpoints) && apiequality.Semantic.DeepEqual(e.Labels, slice.Labels)
		}
	}
	return false
}

func newSlice(service *corev1.Service, kind discoveryv1.AddressType, ports []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, GenerateName: service.Name + "-", Labels: sliceLabels(service),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(service, corev1.SchemeGroupVersion.WithKind("Service"))},
		},
		AddressType: kind, Ports: ports,
	}
}

func sliceLabels(service *corev1.Service) map[string]string {
	out := map[string]string{}
	for k, v := range service.Labels {
		out[k] = v
	}
	out[discoveryv1.LabelServiceName] = service.Name
	out[discoveryv1.LabelManagedBy] = managedBy
	delete(out, corev1.IsHeadlessService)
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		out[corev1.IsHeadlessService] = ""
	}
	return out
}

func endpoint(service *corev1.Service, pod *corev1.Pod, address string, zone func(string) string) discoveryv1.Endpoint {
	podReady, _ := loop.Ready(pod)
	terminating := pod.DeletionTimestamp != nil
	serving := podReady || service.Spec.PublishNotReadyAddresses
	ready := service.Spec.PublishNotReadyAddresses || podReady && !terminating
	e := discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if node := pod.Spec.NodeName; node != "" {
		e.NodeName = &node
		if z := zone(node); z != "" {
			e.Zone = &z
		}
	}
	if host := pod.Spec.Hostname; host != "" && pod.Spec.Subdomain == service.Name {
		e.Hostname = &host
	}
	return e
}

func slicePorts(service *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for _, p := range ports(service, pod) {
		out = append(out, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	return out
}

func targetUID(e discoveryv1.Endpoint) string {
	if e.TargetRef == nil {
		return ""
	}
	return string(e.TargetRef.UID)
}
