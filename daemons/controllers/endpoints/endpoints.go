// Package endpoints tells where the pods behind each Service are: EndpointSlices, and
// the older Endpoints for clients that still read them. Who sends traffic there is the
// proxy's and the name server's business.
package endpoints

import (
	"context"
	"fmt"
	"net/netip"
	"sort"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	services  corelisters.ServiceLister
	pods      corelisters.PodLister
	endpoints corelisters.EndpointsLister
}

// New returns the controller that keeps the Endpoints of every Service with a selector.
func New(c loop.Context) loop.Controller {
	services, pods, endpoints := c.Informers.Core().V1().Services(), c.Informers.Core().V1().Pods(), c.Informers.Core().V1().Endpoints()
	e := &controller{Context: c, services: services.Lister(), pods: pods.Lister(), endpoints: endpoints.Lister()}
	e.Loop = loop.Loop{Name: "endpoints", Log: c.Log, Sync: e.sync, Synced: []cache.InformerSynced{
		services.Informer().HasSynced, pods.Informer().HasSynced, endpoints.Informer().HasSynced}}
	wakeOnChange(services.Informer(), pods.Informer(), e.services, e.Add)
	loop.On(endpoints.Informer(), e.Add)
	return e
}

// wakeOnChange calls wake with every service that changed, or whose pods did.
func wakeOnChange(services, pods cache.SharedIndexInformer, lister corelisters.ServiceLister, wake func(obj any)) {
	loop.On(services, wake)
	loop.OnChange(pods, func(old, obj any) {
		var was, is *corev1.Pod
		if old != nil {
			was = old.(*corev1.Pod)
		}
		if obj != nil {
			is = obj.(*corev1.Pod)
		}
		if was != nil && is != nil && sameForServices(was, is) {
			return
		}
		namespace := ""
		if is != nil {
			namespace = is.Namespace
		} else {
			namespace = was.Namespace
		}
		all, err := lister.Services(namespace).List(labels.Everything())
		if err != nil {
			return
		}
		for _, service := range all {
			if len(service.Spec.Selector) == 0 {
				continue
			}
			selector := labels.SelectorFromSet(service.Spec.Selector)
			if was != nil && selector.Matches(labels.Set(was.Labels)) || is != nil && selector.Matches(labels.Set(is.Labels)) {
				wake(service)
			}
		}
	})
}

// sameForServices says whether nothing that an endpoint shows differs.
func sameForServices(a, b *corev1.Pod) bool {
	readyA, _ := loop.Ready(a)
	readyB, _ := loop.Ready(b)
	return readyA == readyB && a.Status.PodIP == b.Status.PodIP && len(a.Status.PodIPs) == len(b.Status.PodIPs) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && a.Spec.NodeName == b.Spec.NodeName &&
		finished(a) == finished(b) && apiequality.Semantic.DeepEqual(a.Labels, b.Labels)
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (c *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	client := c.Client.CoreV1().Endpoints(namespace)
	service, err := c.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		there, err := c.endpoints.Endpoints(namespace).Get(name)
		if err != nil || there.Labels[managedLabel] != managedValue {
			return nil // gone, or somebody else's
		}
		// The server has the last word: a service that the cache has not seen yet has clients.
		if _, err := c.Client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
		if err := client.Delete(ctx, name, loop.AsSeen(there)); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	} else if err != nil {
		return err
	}
	if len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	pods, err := c.pods.Pods(namespace).List(labels.SelectorFromSet(service.Spec.Selector))
	if err != nil {
		return err
	}
	want := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{managedLabel: managedValue}},
		Subsets:    Subsets(service, pods),
	}
	for k, v := range service.Labels {
		want.Labels[k] = v
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		want.Labels[corev1.IsHeadlessService] = ""
	}
	have, err := c.endpoints.Endpoints(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsAlreadyExists(err) {
			return nil // what is there already is still to be seen, and its event comes
		}
		return err
	} else if err != nil {
		return err
	}
	if apiequality.Semantic.DeepEqual(have.Subsets, want.Subsets) && apiequality.Semantic.DeepEqual(have.Labels, want.Labels) {
		return nil
	}
	updated := have.DeepCopy()
	updated.Labels, updated.Subsets = want.Labels, want.Subsets
	if _, err = client.Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update Endpoints %s: %w", key, err)
	}
	return nil
}

// The label that tells Endpoints of this controller from those that a person made, upstream's.
const (
	managedLabel = "endpoints.kubernetes.io/managed-by"
	managedValue = "endpoint-controller"
)

// Subsets groups a service's pods by the ports that they serve it on.
func Subsets(service *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	var subsets []corev1.EndpointSubset
	sorted := append([]*corev1.Pod(nil), pods...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Status.PodIP < sorted[j].Status.PodIP })
	for _, pod := range sorted {
		address := addressOf(pod, families(service)[0])
		ready, _ := loop.Ready(pod)
		if address == "" || pod.DeletionTimestamp != nil && !service.Spec.PublishNotReadyAddresses {
			continue
		}
		a := corev1.EndpointAddress{IP: address, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
		if pod.Spec.NodeName != "" {
			node := pod.Spec.NodeName
			a.NodeName = &node
		}
		if pod.Spec.Hostname != "" && pod.Spec.Subdomain == service.Name {
			a.Hostname = pod.Spec.Hostname
		}
		subset := subsetFor(&subsets, ports(service, pod))
		if ready || service.Spec.PublishNotReadyAddresses {
			subset.Addresses = append(subset.Addresses, a)
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, a)
		}
	}
	return subsets
}

func subsetFor(subsets *[]corev1.EndpointSubset, ports []corev1.EndpointPort) *corev1.EndpointSubset {
	for i := range *subsets {
		if apiequality.Semantic.DeepEqual((*subsets)[i].Ports, ports) {
			return &(*subsets)[i]
		}
	}
	*subsets = append(*subsets, corev1.EndpointSubset{Ports: ports})
	return &(*subsets)[len(*subsets)-1]
}

// ports are the service's ports as one pod serves them; a named target that the pod
// does not have is left out.
func ports(service *corev1.Service, pod *corev1.Pod) []corev1.EndpointPort {
	var out []corev1.EndpointPort
	for _, p := range service.Spec.Ports {
		if number, ok := targetPort(p, pod); ok {
			out = append(out, corev1.EndpointPort{Name: p.Name, Port: number, Protocol: p.Protocol, AppProtocol: p.AppProtocol})
		}
	}
	return out
}

func targetPort(p corev1.ServicePort, pod *corev1.Pod) (int32, bool) {
	if p.TargetPort.Type == intstr.Int {
		if p.TargetPort.IntVal == 0 {
			return p.Port, true
		}
		return p.TargetPort.IntVal, true
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, c := range containers {
			for _, cp := range c.Ports {
				if cp.Name == p.TargetPort.StrVal && cp.Protocol == p.Protocol {
					return cp.ContainerPort, true
				}
			}
		}
	}
	return 0, false
}

func families(service *corev1.Service) []corev1.IPFamily {
	if len(service.Spec.IPFamilies) > 0 {
		return service.Spec.IPFamilies
	}
	return []corev1.IPFamily{corev1.IPv4Protocol}
}

// addressOf is a pod's address of a family, "" while it has none or when it is done.
func addressOf(pod *corev1.Pod, family corev1.IPFamily) string {
	if finished(pod) {
		return ""
	}
	all := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		all = append(all, ip.IP)
	}
	for _, text := range all {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() == (family == corev1.IPv4Protocol) {
			return text
		}
	}
	return ""
}
