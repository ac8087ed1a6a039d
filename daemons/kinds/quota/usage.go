package quota

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	resourcehelper "k8s.io/component-helpers/resource"

	"clusterctl/daemons/api"
)

// Usage returns what an object uses of each item that quotas can limit, at a time. Objects of unknown types count as
// one object of their resource.
func Usage(of schema.GroupResource, obj any, now time.Time, with Lookups) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourceName(countPrefix + of.String()): newCount(1)}
	switch o := obj.(type) {
	case *corev1.Pod:
		if usesResources(o, now) {
			podUsage(o, out)
		}
		return out
	case *corev1.Service:
		serviceUsage(o, out)
		return out
	case *corev1.PersistentVolumeClaim:
		claimUsage(o, out)
		return out
	case *resourcev1.ResourceClaim:
		deviceUsage(o, out)
		extendedUsage(o, out, now, with)
		return out
	}
	// The oldest kinds can also be limited by their bare names.
	if named := CountedResources(corev1.ResourceName(of.Resource)); len(named) == 1 && named[0] == of && of != pods &&
		of != services &&
		of != claims {
		out[corev1.ResourceName(of.Resource)] = newCount(1)
	}
	return out
}

func newCount(n int64) quantity.Quantity { return *quantity.NewQuantity(n, quantity.DecimalSI) }

// usesResources reports whether a pod uses resources: it has not ended, and its deletion is not overdue. Otherwise pods
// of an unreachable node would use the quota for ever.
func usesResources(p *corev1.Pod, now time.Time) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil {
		return true
	}
	// The timestamp already includes the grace period. Upstream adds it again, and so does this.
	return now.Before(p.DeletionTimestamp.Add(api.Seconds(*p.DeletionGracePeriodSeconds)))
}

func podUsage(p *corev1.Pod, out corev1.ResourceList) {
	out[corev1.ResourcePods] = newCount(1)
	for r, amount := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true}) {
		huge := strings.HasPrefix(string(r), hugePagesPrefix)
		if isComputed(r) || huge {
			out[r] = amount
		}
		if isComputed(r) || huge || isExtended(r) {
			out[requestsPrefix+r] = amount
		}
	}
	for r, amount := range resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{UseStatusResources: true}) {
		if isComputed(r) {
			out["limits."+r] = amount
		}
	}
}

func serviceUsage(s *corev1.Service, out corev1.ResourceList) {
	out[corev1.ResourceServices] = newCount(1)
	out[corev1.ResourceServicesNodePorts], out[corev1.ResourceServicesLoadBalancers] = newCount(0), newCount(0)
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		out[corev1.ResourceServicesNodePorts] = newCount(int64(len(s.Spec.Ports)))
	case corev1.ServiceTypeLoadBalancer:
		out[corev1.ResourceServicesLoadBalancers] = newCount(1)
		out[corev1.ResourceServicesNodePorts] = newCount(nodePorts(s))
	}
}

// nodePorts counts the node ports of a load balancer, including those that are about to be allocated: one per port,
// unless allocation is disabled.
func nodePorts(s *corev1.Service) (n int64) {
	given := s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts
	for _, port := range s.Spec.Ports {
		if given || port.NodePort != 0 {
			n++
		}
	}
	return n
}

func claimUsage(c *corev1.PersistentVolumeClaim, out corev1.ResourceList) {
	storage := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if allocated, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(storage) > 0 {
		storage = allocated // released only once the expansion is known to have failed
	}
	storage = storage.DeepCopy()
	storage.RoundUp(0) // round up to a whole byte
	class, older := c.Annotations[corev1.BetaStorageClassAnnotation]
	if !older && c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	out[corev1.ResourcePersistentVolumeClaims], out[corev1.ResourceRequestsStorage] = newCount(1), storage
	if class != "" {
		of := corev1.ResourceName(class + perClassSuffix)
		out[of+corev1.ResourcePersistentVolumeClaims], out[of+corev1.ResourceRequestsStorage] = newCount(1), storage
	}
}

// deviceUsage counts, by class, the maximum number of devices that a claim can get.
func deviceUsage(c *resourcev1.ResourceClaim, out corev1.ResourceList) {
	maximumOf := func(mode resourcev1.DeviceAllocationMode, count int64) int64 {
		if mode == resourcev1.DeviceAllocationModeAll {
			return resourcev1.AllocationResultsMaxSize
		}
		return count
	}
	for _, r := range c.Spec.Devices.Requests {
		if exact := r.Exactly; exact != nil {
			Add(
				out,
				corev1.ResourceList{
					corev1.ResourceName(exact.DeviceClassName + claimsPerClassSuffix): newCount(
						maximumOf(exact.AllocationMode, exact.Count),
					),
				},
			)
			continue
		}
		// One of the subrequests is chosen: the largest counts for each class.
		greediest := corev1.ResourceList{}
		for _, sub := range r.FirstAvailable {
			name, n := corev1.ResourceName(sub.DeviceClassName+claimsPerClassSuffix),
				newCount(maximumOf(sub.AllocationMode, sub.Count))
			if current := greediest[name]; n.Cmp(current) > 0 {
				greediest[name] = n
			}
		}
		Add(out, greediest)
	}
}
