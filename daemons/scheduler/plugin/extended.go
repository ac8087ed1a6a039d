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

// ClaimLeftOver refuses nodes while there is a claim of an earlier try for the pod's extended resources.
var ClaimLeftOver = final(dynamicResources, "cannot schedule extended resource claim")

var nobodyHasDevice = final(dynamicResources, "cannot fit resource")

// specialName stands for the name of a claim that is made when its pod is bound; no object can have it.
const specialName = "<extended-resources>"

// Special is the claim for those of a pod's extended resources that a node has as devices of a class.
type Special struct {
	Claim    *resourcev1.ResourceClaim
	Mappings []corev1.ContainerExtendedResourceRequest // which of its requests are for which container
}

// backed reports whether a node has an extended resource as devices of a class alone.
func backed(t *Task, n *cluster.Node, name corev1.ResourceName) bool {
	return n.Allocatable.Other[name] == 0 && cluster.Backable(name) && t.Devices.ClassFor(name) != nil
}

// backable reports whether there is a class for any extended resource that the pod asks for.
func backable(t *Task) bool {
	return slices.ContainsFunc(t.Pod.Askers, func(a cluster.Asker) bool {
		return slices.ContainsFunc(
			a.Wanted,
			func(w cluster.Wanted) bool { return t.Devices.ClassFor(w.Resource) != nil },
		)
	})
}

// backedOn are the extended resources of a pod that a node has as devices, ordered by name.
func backedOn(t *Task, n *cluster.Node) ([]corev1.ResourceName, *Refusal) {
	var out []corev1.ResourceName
	for _, name := range slices.Sorted(maps.Keys(t.Pod.Requests.Other)) {
		if t.Pod.Requests.Other[name] <= 0 || !cluster.Backable(name) {
			continue
		}
		if backed(t, n, name) {
			out = append(out, name)
		} else if _, known := n.Allocatable.Other[name]; !known {
			return nil, nobodyHasDevice // the arguments have the other filter ignore it
		}
	}
	return out, nil
}

// special is the claim of devices for extended resources of a pod, under a UID of its own until there is an object for
// it.
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

// backing is the requests of devices for one extended resource.
type backing struct {
	class    string
	requests []resourcev1.DeviceRequest
	mappings []corev1.ContainerExtendedResourceRequest
}

// newBacking has each container that goes on running request its own devices. One that ends before the next container
// starts uses what those after it have requested, and all of them share one more request for what that lacks.
func newBacking(t *Task, name corev1.ResourceName) *backing {
	b := &backing{class: t.Devices.ClassFor(name).Name}
	own := map[int]*resourcev1.DeviceRequest{} // by container
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
			b.use(a, w, "") // named below
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

// use says that a container gets the devices of a request.
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

// classConcerned reports whether a class stands, or stood, for an extended resource that the pod asks for.
func classConcerned(t *Task, what Happened) bool {
	return slices.ContainsFunc(
		what.Extended,
		func(name string) bool { return t.Pod.Requests.Other[corev1.ResourceName(name)] > 0 },
	)
}

// amount is how much a node has of a resource, and how much of that is taken.
type amount func(n *cluster.Node, name corev1.ResourceName) (has, taken int64)

// devicesAs counts the devices that stand for extended resources of the pod which scores go by; nil: there are no such
// resources.
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

// join makes a key of names.
func join(names []corev1.ResourceName) string {
	var b strings.Builder
	for _, n := range names {
		b.WriteString(string(n))
		b.WriteByte(' ')
	}
	return b.String()
}
