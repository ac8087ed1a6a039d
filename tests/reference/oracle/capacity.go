package oracle

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// capacityFor reports whether the driver of a class has enough capacity for the claim on the node, if the driver
// publishes capacity. It returns the object with the largest capacity. If an object has a maximumVolumeSize, this is
// compared instead of its capacity.
func (c *simulation) capacityFor(
	class *storagev1.StorageClass,
	claim *corev1.PersistentVolumeClaim,
	node *corev1.Node,
) (*storagev1.CSIStorageCapacity, bool) {
	driver := c.csiDriver(class.Provisioner)
	want, asks := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !asks || driver == nil || !isTrue(driver.Spec.StorageCapacity) {
		return nil, true
	}
	var best *storagev1.CSIStorageCapacity
	for _, o := range c.Capacities {
		size := o.Capacity
		if o.MaximumVolumeSize != nil {
			size = o.MaximumVolumeSize
		}
		if o.StorageClassName != class.Name || size == nil || size.Cmp(want) < 0 || o.NodeTopology == nil ||
			!selects(o.NodeTopology, node.Labels) {
			continue
		}
		if best == nil || o.Capacity != nil && (best.Capacity == nil || o.Capacity.Cmp(*best.Capacity) > 0) {
			best = o
		}
	}
	return best, best != nil
}

// volumeBindingScore scores the share that the pod's unbound claims take of the volumes that they get. If they get no
// volumes, it scores the share of the capacity in which their volumes are provisioned. It computes the share for each
// class. By default, a smaller share has a better score.
func volumeBindingScore(c *simulation, pod *corev1.Pod, nodes []*corev1.Node) []int64 {
	shape := []configv1.UtilizationShapePoint{{Utilization: 0, Score: 10}, {Utilization: 100, Score: 0}}
	if c.Arguments.Volumes != nil && len(c.Arguments.Volumes.Shape) > 0 {
		shape = c.Arguments.Volumes.Shape
	}
	var unbound []*corev1.PersistentVolumeClaim
	for _, claim := range c.podClaims(pod) {
		if !isBound(claim) {
			unbound = append(unbound, claim)
		}
	}
	scores := make([]int64, len(nodes))
	for i, node := range nodes {
		outcomes, _ := c.bindable(unbound, node)
		static := false
		for _, o := range outcomes {
			static = static || o.volume != nil
		}
		requests, has := map[string]int64{}, map[string]int64{}
		for _, o := range outcomes {
			class := claimClass(o.claim)
			switch {
			case static && o.volume != nil:
				has[class] += o.volume.Spec.Capacity.Storage().Value()
			case !static && o.capacity != nil && o.capacity.Capacity != nil:
				has[class] = o.capacity.Capacity.Value()
			default:
				continue
			}
			requests[class] += o.claim.Spec.Resources.Requests.Storage().Value()
		}
		sum := int64(0)
		for class := range has {
			sum += interpolate(shape, utilization(requests[class], has[class]))
		}
		if len(has) > 0 {
			scores[i] = int64(math.Round(float64(sum) / float64(len(has))))
		}
	}
	return scores
}
