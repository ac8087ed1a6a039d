package cluster

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ContainerRequest is a container that requests extended resources. Some nodes may have these as amounts, others as
// devices of a class.
type ContainerRequest struct {
	Index     int // position among all containers, including init containers
	Name      string
	EndsEarly bool // an init container that ends before the next one starts
	Resources []RequestedResource
}

// RequestedResource is how much of an extended resource a container requests.
type RequestedResource struct {
	Resource corev1.ResourceName
	Order    int // position of the resource among all that the container requests, sorted by name
	Count    int64
}

// CanMapToDevices reports whether devices of a class can provide a resource of this name.
func CanMapToDevices(name corev1.ResourceName) bool {
	domain, _, ok := strings.Cut(string(name), "/")
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	return ok && !strings.Contains(domain+"/", corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(domain, corev1.DefaultResourceRequestsPrefix)
}

// containerRequests returns the containers of a pod that request extended resources.
func containerRequests(pod *corev1.Pod) []ContainerRequest {
	var out []ContainerRequest
	add := func(i int, c *corev1.Container, first bool) {
		if !requestsExtended(c) {
			return
		}
		a := ContainerRequest{
			Index:     i,
			Name:      c.Name,
			EndsEarly: first && (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways),
		}
		for order, name := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
			q := c.Resources.Requests[name]
			if n, whole := q.AsInt64(); whole && n > 0 && CanMapToDevices(name) {
				a.Resources = append(a.Resources, RequestedResource{name, order, n})
			}
		}
		if len(a.Resources) > 0 {
			out = append(out, a)
		}
	}
	for i := range pod.Spec.InitContainers {
		add(i, &pod.Spec.InitContainers[i], true)
	}
	for i := range pod.Spec.Containers {
		add(len(pod.Spec.InitContainers)+i, &pod.Spec.Containers[i], false)
	}
	return out
}

func requestsExtended(c *corev1.Container) bool {
	for name := range c.Resources.Requests {
		if CanMapToDevices(name) {
			return true
		}
	}
	return false
}

// ClassFor returns the class whose devices provide an extended resource, or nil.
func (d *Devices) ClassFor(name corev1.ResourceName) *resourcev1.DeviceClass {
	if class, ok := strings.CutPrefix(string(name), resourcev1.ResourceDeviceClassPrefix); ok {
		return d.classes[class]
	}
	return d.extended[name]
}

// mapExtendedResources maps each extended resource to its class: of several, the newest one, and of those the first by
// name.
func (d *Devices) mapExtendedResources() {
	clear(d.extended)
	for _, name := range slices.Sorted(maps.Keys(d.classes)) {
		c := d.classes[name]
		if c.Spec.ExtendedResourceName == nil {
			continue
		}
		resource := corev1.ResourceName(*c.Spec.ExtendedResourceName)
		if other := d.extended[resource]; other == nil || other.CreationTimestamp.Before(&c.CreationTimestamp) {
			d.extended[resource] = c
		}
	}
}

// CreatedClaim returns the claim that was created for a pod's extended resources, or nil. Claims in other namespaces do
// not count, even if they name the pod. Otherwise users with write access there could keep other users' pods from being
// scheduled.
func (d *Devices) CreatedClaim(pod *Pod) *resourcev1.ResourceClaim {
	return d.createdClaims[pod.Namespace+"/"+string(pod.UID)]
}

// podOfCreatedClaim returns the namespace/UID of the pod for whose extended resources a claim was created. It returns
// "" for other claims.
func podOfCreatedClaim(c *resourcev1.ResourceClaim) string {
	owner := metav1.GetControllerOfNoCopy(c)
	if owner == nil || owner.Kind != "Pod" || c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" {
		return ""
	}
	return c.Namespace + "/" + string(owner.UID)
}

// RecordCreated records that the object for an assumed claim was created, under another UID. Its allocation counts
// until the API shows the object.
func (d *Devices) RecordCreated(before types.UID, claim *resourcev1.ResourceClaim) {
	if a := d.assumed[before]; a != nil {
		delete(d.assumed, before)
		a.awaitingWatch = d.Claim(claim.Namespace, claim.Name) == nil
		d.assumed[claim.UID] = a
	}
}

// IsAwaitingWatch reports whether a claim that was created here has not been shown by the API yet.
func (d *Devices) IsAwaitingWatch(claim *resourcev1.ResourceClaim) bool {
	a := d.assumed[claim.UID]
	return a != nil && a.awaitingWatch
}

// ReleaseDeleted releases the allocation of a claim that was created here and no longer exists.
func (d *Devices) ReleaseDeleted(claim *resourcev1.ResourceClaim) { d.releaseAssumed(claim.UID) }
