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
var ClaimLeftOver = final(dynamicResources, "cannot schedule extended resource claim")

var nobodyHasDevice = final(dynamicResources, "cannot fit resource")

// specialName is a placeholder for the name of a claim that is created when its pod is bound. It is not a valid object
// name.
const specialName = "<extended-resources>"

// Special is the claim for the extended resources of a pod that a node provides as devices of a class.
type Special struct {
	Claim    *resourcev1.ResourceClaim
	Mappings []corev1.ContainerExtendedResourceRequest // which request is for which container
}

// backed reports whether a node provides an extended resource only as devices of a class.
func backed(t *Task, n *cluster.Node, name corev1.ResourceName) bool {
	return n.Allocatable.Other[name] == 0 && cluster.Backable(name) && t.Devices.ClassFor(name) != nil
}

// backable reports whether a class provides any of the pod's extended resources.
func backable(t *Task) bool {
	return slices.ContainsFunc(t.Pod.Askers, func(a cluster.Asker) bool {
		return slices.ContainsFunc(
			a.Wanted,
			func(w cluster.Wanted) bool { return t.Devices.ClassFor(w.Resource) != nil },
		)
	})
}

// backedOn returns the extended resources of a pod that a node provides as devices, sorted by name.
func backedOn(t *Task, n *cluster.Node) ([]corev1.ResourceName, *Refusal) {
	var out []corev1.ResourceName
	for _, name := range slices.Sorted(maps.Keys(t.Pod.Requests.Other)) {
		if t.Pod.Requests.Other[name] <= 0 || !cluster.Backable(name) {
			continue
		}
		if backed(t, n, name) {
			out = append(out, name)
		} else if _, known := n.Allocatable.Other[name]; !known {
			return nil, nobodyHasDevice // the other filter may be configured to ignore this resource
		}
	}
	return out, nil
}

// special returns the claim for a pod's extended resources. It has a placeholder UID until the object exists.
func special(t *Task, names []corev1.ResourceName) *Special {
	out := &Special{Claim: &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: t.Pod.Namespace, Name: specialName, GenerateName: t.Pod.Name + "-extended-resources-",
		UID:         types.UID(specialName + string(t.Pod.UID)),
		Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: t.Pod.Name, UID: t.Pod.UID, Controller: ptr.To(true),
		}},
	}}}
	requests := &out.Claim.Spec.Devices.Requests
	for _, name := range names {
		one := newBacking(t, name)
		*requests = append(*requests, one.requests...)
		out.Mappings = append(out.Mappings, one.mappings...)
	}
	slices.SortFunc(*requests, func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// backing holds the device requests for one extended resource.
type backing struct {
	class    string
	requests []resourcev1.DeviceRequest
	mappings []corev1.ContainerExtendedResourceRequest
}

// newBacking returns the device requests for an extended resource. Each container that keeps running requests its own
// devices. An init container that ends before the next one starts uses the devices of later containers. If these are
// not enough, one additional request covers the rest for all such containers.
func newBacking(t *Task, name corev1.ResourceName) *backing {
	b := &backing{class: t.Devices.ClassFor(name).Name}
	own := map[int]*resourcev1.DeviceRequest{} // by the container's index
	for i := range t.Pod.Askers {
		a := &t.Pod.Askers[i]
		if w := wanted(a, name); w != nil && !a.Once {
			r := b.request(a, w, w.Count)
			own[a.Index] = &r
			b.requests = append(b.requests, r)
			b.use(a, w, r.Name)
		}
	}
	var more *resourcev1.DeviceRequest
	used := len(b.mappings)
	for i := range t.Pod.Askers {
		a := &t.Pod.Askers[i]
		w := wanted(a, name)
		if w == nil || !a.Once {
			continue
		}
		left := w.Count
		for _, later := range slices.Sorted(maps.Keys(own)) {
			if later > a.Index && left > 0 {
				left -= own[later].Exactly.Count
				b.use(a, w, own[later].Name)
			}
		}
		if left > 0 {
			if r := b.request(a, w, left); more == nil || more.Exactly.Count < left {
				more = &r
			}
			b.use(a, w, "") // its request is set below
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

func wanted(a *cluster.Asker, name corev1.ResourceName) *cluster.Wanted {
	for i := range a.Wanted {
		if a.Wanted[i].Resource == name {
			return &a.Wanted[i]
		}
	}
	return nil
}

func (b *backing) request(a *cluster.Asker, w *cluster.Wanted, count int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{
		Name: fmt.Sprintf("container-%d-request-%d", a.Index, w.Order),
		Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: b.class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
		},
	}
}

// use records that a container gets the devices of a request.
func (b *backing) use(a *cluster.Asker, w *cluster.Wanted, request string) {
	b.mappings = append(
		b.mappings,
		corev1.ContainerExtendedResourceRequest{
			ContainerName: a.Name,
			ResourceName:  string(w.Resource),
			RequestName:   request,
		},
	)
}

// classConcerned reports whether a class provides, or provided, an extended resource that the pod requests.
func classConcerned(t *Task, what Happened) bool {
	return slices.ContainsFunc(
		what.Extended,
		func(name string) bool { return t.Pod.Requests.Other[corev1.ResourceName(name)] > 0 },
	)
}

// amount returns how much of a resource a node has, and how much of it is used.
type amount func(n *cluster.Node, name corev1.ResourceName) (has, taken int64)

// devicesAs returns a function that counts the devices for those extended resources of the pod that scores use. It
// returns nil if there are no such resources.
func devicesAs(t *Task, resources []Weighted) amount {
	var counters map[corev1.ResourceName]*device.Counter
	for _, r := range resources {
		if t.Pod.Requests.Other[r.Name] <= 0 || !cluster.Backable(r.Name) {
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
	return func(n *cluster.Node, name corev1.ResourceName) (has, taken int64) {
		if c := counters[name]; c != nil {
			return c.On(n.Object(), t.Devices.Catalog, t.Devices.Use)
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
