package cluster

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/api/storage"
)

// Capacity is how much storage of a class a driver can provision for some nodes, according to a CSIStorageCapacity.
type Capacity struct {
	Total         int64 // bytes; 0 if only the maximum size of one volume is known
	maxVolumeSize int64 // maximum size of one volume in bytes
	nodes         labels.Selector
}

func (s *Storage) setCapacity(o *storagev1.CSIStorageCapacity) {
	s.deleteCapacity(o)
	c := &Capacity{nodes: labels.Nothing()}
	if o.NodeTopology != nil {
		if selector, err := metav1.LabelSelectorAsSelector(o.NodeTopology); err == nil {
			c.nodes = selector
		}
	}
	if o.Capacity != nil {
		c.Total = o.Capacity.Value()
		c.maxVolumeSize = c.Total
	}
	if o.MaximumVolumeSize != nil { // more precise
		c.maxVolumeSize = o.MaximumVolumeSize.Value()
	}
	if o.Capacity == nil && o.MaximumVolumeSize == nil {
		c.maxVolumeSize = -1
	}
	if s.capacities[o.StorageClassName] == nil {
		s.capacities[o.StorageClassName] = map[string]*Capacity{}
	}
	s.capacities[o.StorageClassName][o.Namespace+"/"+o.Name] = c
}

// deleteCapacity removes an object. Its class is immutable.
func (s *Storage) deleteCapacity(o *storagev1.CSIStorageCapacity) {
	of := s.capacities[o.StorageClassName]
	if delete(of, o.Namespace+"/"+o.Name); len(of) == 0 {
		delete(s.capacities, o.StorageClassName)
	}
}

// capacityFor reports whether a driver has enough capacity for a claim's volume on a node. It returns the largest
// sufficient capacity. Drivers without storage capacity tracking always have enough.
func (s *Storage) capacityFor(class *storagev1.StorageClass, claim *corev1.PersistentVolumeClaim, n *Node) (*Capacity,
	bool) {
	want, hasRequest := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	driver := s.drivers[class.Provisioner]
	if !hasRequest || driver == nil || driver.Spec.StorageCapacity == nil || !*driver.Spec.StorageCapacity {
		return nil, true
	}
	var best *Capacity
	for _, c := range s.capacities[class.Name] {
		if c.maxVolumeSize >= want.Value() && (best == nil || c.Total > best.Total) &&
			c.nodes.Matches(labels.Set(n.Labels)) {
			best = c
		}
	}
	return best, best != nil
}

// ClassResource is what claims of one class request, and the capacity that they get, in bytes.
type ClassResource struct{ Requested, Capacity int64 }

// SumByClass sums up decisions by class. If existing volumes are used, it counts those. Otherwise it counts the known
// capacity in which volumes are provisioned.
func SumByClass(decisions []Decision) map[string]ClassResource {
	existing, made := map[string]ClassResource{}, map[string]ClassResource{}
	for _, d := range decisions {
		class := storage.GetPersistentVolumeClaimClass(d.Claim)
		requested := d.Claim.Spec.Resources.Requests.Storage().Value()
		switch {
		case d.Volume != nil:
			sum := existing[class]
			capacity := sum.Capacity + d.Volume.Spec.Capacity.Storage().Value()
			existing[class] = ClassResource{sum.Requested + requested, capacity}
		case d.Capacity != nil && d.Capacity.Total > 0:
			made[class] = ClassResource{made[class].Requested + requested, d.Capacity.Total}
		}
	}
	if len(existing) > 0 {
		return existing
	}
	return made
}
