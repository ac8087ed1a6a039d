package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/device"
)

// ClaimLeftOver refuses nodes while the claim of an earlier attempt for the pod's extended resources exists.
var ClaimLeftOver = finalRefusal(dynamicResources, "cannot schedule extended resource claim")

var noNodeHasDevice = finalRefusal(dynamicResources, "cannot fit resource")

// extendedClaimName is a placeholder for the name of a claim that is created when its pod is bound. It is not a valid
// object name.
const extendedClaimName = "<extended-resources>"

// ExtendedClaim is the claim for the extended resources of a pod that a node provides as devices of a class.
type ExtendedClaim struct {
	Claim    *resourcev1.ResourceClaim
	Mappings []corev1.ContainerExtendedResourceRequest // which request is for which container
}

// isProvidedByDevices reports whether a node provides an extended resource only as devices of a class.
func isProvidedByDevices(t *Task, n *cluster.Node, name corev1.ResourceName) bool {
	return n.Allocatable.Other[name] == 0 && cluster.CanMapToDevices(name) && t.Devices.ClassFor(name) != nil
}

// canUseDevices reports whether a class provides any of the pod's extended resources.
func canUseDevices(t *Task) bool {
	return slices.ContainsFunc(t.Pod.ContainerRequests, func(a cluster.ContainerRequest) bool {
		return slices.ContainsFunc(a.Resources,
			func(w cluster.RequestedResource) bool { return t.Devices.ClassFor(w.Resource) != nil })
	})
}

// resourcesFromDevices returns the extended resources of a pod that a node provides as devices, sorted by name.
func resourcesFromDevices(t *Task, n *cluster.Node) ([]corev1.ResourceName, *Refusal) {
	var out []corev1.ResourceName
	for _, name := range slices.Sorted(maps.Keys(t.Pod.Requests.Other)) {
		if t.Pod.Requests.Other[name] <= 0 || !cluster.CanMapToDevices(name) {
			continue
		}
		if isProvidedByDevices(t, n, name) {
			out = append(out, name)
		} else if _, ok := n.Allocatable.Other[name]; !ok {
			return nil, noNodeHasDevice // the other filter may be configured to ignore this resource
		}
	}
	return out, nil
}

// newExtendedClaim returns the claim for a pod's extended resources. It has a placeholder UID until the object exists.
func newExtendedClaim(t *Task, names []corev1.ResourceName) *ExtendedClaim {
	out := &ExtendedClaim{Claim: &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: t.Pod.Namespace, Name: extendedClaimName, GenerateName: t.Pod.Name + "-extended-resources-",
		UID:         types.UID(extendedClaimName + string(t.Pod.UID)),
		Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: t.Pod.Name, UID: t.Pod.UID, Controller: ptr.To(true),
		}},
	}}}
	requests := &out.Claim.Spec.Devices.Requests
	for _, name := range names {
		one := newDeviceRequests(t, name)
		*requests = append(*requests, one.requests...)
		out.Mappings = append(out.Mappings, one.mappings...)
	}
	slices.SortFunc(*requests, func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// deviceRequests holds the device requests for one extended resource.
type deviceRequests struct {
	class    string
	requests []resourcev1.DeviceRequest
	mappings []corev1.ContainerExtendedResourceRequest
}

// newDeviceRequests returns the device requests for an extended resource. Each container that keeps running requests
// its own devices. An init container that ends before the next one starts uses the devices of later containers. If
// these are not enough, one additional request covers the rest for all such containers.
func newDeviceRequests(t *Task, name corev1.ResourceName) *deviceRequests {
	b := &deviceRequests{class: t.Devices.ClassFor(name).Name}
	own := map[int]*resourcev1.DeviceRequest{} // by the container's index
	for i := range t.Pod.ContainerRequests {
		a := &t.Pod.ContainerRequests[i]
		if w := findRequested(a, name); w != nil && !a.EndsEarly {
			r := b.newRequest(a, w, w.Count)
			own[a.Index] = &r
			b.requests = append(b.requests, r)
			b.addMapping(a, w, r.Name)
		}
	}
	var more *resourcev1.DeviceRequest
	used := len(b.mappings)
	for i := range t.Pod.ContainerRequests {
		a := &t.Pod.ContainerRequests[i]
		w := findRequested(a, name)
		if w == nil || !a.EndsEarly {
			continue
		}
		left := w.Count
		for _, later := range slices.Sorted(maps.Keys(own)) {
			if later > a.Index && left > 0 {
				left -= own[later].Exactly.Count
				b.addMapping(a, w, own[later].Name)
			}
		}
		if left > 0 {
			if r := b.newRequest(a, w, left); more == nil || more.Exactly.Count < left {
				more = &r
			}
			b.addMapping(a, w, "") // its request is set below
		}
	}
	for i := range b.mappings[used:] {
		if m := &b.mappings[used+i]; m.RequestName == "" {
			m.RequestName = more.Name
		}
	}
	if more != nil {
		b.requests = append(b.requests, *more)
	}
	return b
}

func findRequested(a *cluster.ContainerRequest, name corev1.ResourceName) *cluster.RequestedResource {
	for i := range a.Resources {
		if a.Resources[i].Resource == name {
			return &a.Resources[i]
		}
	}
	return nil
}

func (b *deviceRequests) newRequest(a *cluster.ContainerRequest, w *cluster.RequestedResource,
	count int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{
		Name: fmt.Sprintf("container-%d-request-%d", a.Index, w.Order),
		Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: b.class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
		},
	}
}

// addMapping records that a container gets the devices of a request.
func (b *deviceRequests) addMapping(a *cluster.ContainerRequest, w *cluster.RequestedResource, request string) {
	b.mappings = append(
		b.mappings,
		corev1.ContainerExtendedResourceRequest{
			ContainerName: a.Name,
			ResourceName:  string(w.Resource),
			RequestName:   request,
		},
	)
}

// isRequestedFromClass reports whether a class provides, or provided, an extended resource that the pod requests.
func isRequestedFromClass(t *Task, what ClusterEvent) bool {
	return slices.ContainsFunc(what.Extended,
		func(name string) bool { return t.Pod.Requests.Other[corev1.ResourceName(name)] > 0 })
}

// resourceAmount returns how much of a resource a node has, and how much of it is used.
type resourceAmount func(n *cluster.Node, name corev1.ResourceName) (capacity, taken int64)

// deviceAmounts returns a function that counts the devices for those extended resources of the pod that scores use. It
// returns nil if there are no such resources.
func deviceAmounts(t *Task, resources []Weighted) resourceAmount {
	var counters map[corev1.ResourceName]*device.Counter
	for _, r := range resources {
		if t.Pod.Requests.Other[r.Name] <= 0 || !cluster.CanMapToDevices(r.Name) {
			continue
		}
		if class := t.Devices.ClassFor(r.Name); class != nil {
			if c, err := device.NewCounter(class, t.Devices.Compile); err == nil {
				if counters == nil {
					counters = map[corev1.ResourceName]*device.Counter{}
				}
				counters[r.Name] = c
			}
		}
	}
	if len(counters) == 0 {
		return nil
	}
	return func(n *cluster.Node, name corev1.ResourceName) (capacity, taken int64) {
		if c := counters[name]; c != nil {
			return c.CountOn(n.Object(), t.Devices.Catalog, t.Devices.Use)
		}
		return 0, 0
	}
}

// join returns a map key for names.
func join(names []corev1.ResourceName) string {
	var b strings.Builder
	for _, n := range names {
		b.WriteString(string(n))
		b.WriteByte(' ')
	}
	return b.String()
}
