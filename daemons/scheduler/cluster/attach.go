package cluster

import (
	storagev1 "k8s.io/api/storage/v1"
)

// NodeDrivers holds the drivers in a node's CSINode.
type NodeDrivers struct {
	Drivers map[string]bool
	Limits  map[string]int // maximum number of volumes by driver, if the driver has a limit
}

func newNodeDrivers(o *storagev1.CSINode) *NodeDrivers {
	a := &NodeDrivers{Drivers: map[string]bool{}, Limits: map[string]int{}}
	for _, d := range o.Spec.Drivers {
		a.Drivers[d.Name] = true
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			a.Limits[d.Name] = int(*d.Allocatable.Count)
		}
	}
	return a
}

// NodeDrivers returns the data of a node's CSINode, or nil if it has none.
func (s *Storage) NodeDrivers(node string) *NodeDrivers { return s.nodeDrivers[node] }

// RequiresDriver reports whether a driver requires that pods with its volumes are scheduled only to nodes that have the
// driver.
func (s *Storage) RequiresDriver(driver string) bool {
	d := s.drivers[driver]
	return d != nil && d.Spec.PreventPodSchedulingIfMissing != nil && *d.Spec.PreventPodSchedulingIfMissing
}

// attachment is the part of a VolumeAttachment that counts towards a driver's limit.
type attachment struct{ attacher, volume string }

func (s *Storage) attach(o *storagev1.VolumeAttachment) {
	s.detach(o)
	volume := o.Spec.Source.PersistentVolumeName
	if o.Spec.Attacher == "" || volume == nil {
		return
	}
	if s.attached[o.Spec.NodeName] == nil {
		s.attached[o.Spec.NodeName] = map[string]attachment{}
	}
	s.attached[o.Spec.NodeName][o.Name] = attachment{o.Spec.Attacher, *volume}
}

// detach removes an attachment. Its node is immutable.
func (s *Storage) detach(o *storagev1.VolumeAttachment) {
	of := s.attached[o.Spec.NodeName]
	if delete(of, o.Name); len(of) == 0 {
		delete(s.attached, o.Spec.NodeName)
	}
}

// AddAttached adds the volumes that are attached to a node to into, for any pod, each with its driver.
func (s *Storage) AddAttached(node string, into map[string]string) {
	for _, a := range s.attached[node] {
		if pv := s.volumes[a.volume]; pv != nil && pv.Spec.CSI != nil {
			into[a.attacher+"/"+pv.Spec.CSI.VolumeHandle] = a.attacher
		}
	}
}

// AddAttachable adds the volumes of a pod that a driver attaches to into, each with its driver. A claim without a
// volume counts as a volume of its class's provisioner. If migrated, in-tree volumes count as volumes of their CSI
// drivers.
func (s *Storage) AddAttachable(shape *Shape, migrated bool, into map[string]string) {
	for _, v := range shape.Volumes {
		claim := s.Claim(shape.namespace, v.Claim)
		if claim == nil {
			continue
		}
		if pv := s.volumes[claim.Spec.VolumeName]; pv != nil {
			if csi := pv.Spec.CSI; csi != nil {
				into[csi.Driver+"/"+csi.VolumeHandle] = csi.Driver
			} else if pv.inTree.Driver != "" && migrated {
				into[pv.inTree.key()] = pv.inTree.Driver
			}
			continue
		}
		class := s.ClassOf(claim)
		if class == nil {
			continue
		}
		driver := class.Provisioner
		if successor, ok := successors[driver]; ok {
			if !migrated {
				continue
			}
			driver = successor
		}
		into[driver+"/claim/"+claim.Namespace+"/"+claim.Name] = driver
	}
	if !migrated {
		return
	}
	for _, d := range shape.inTreeVolumes {
		into[d.key()] = d.Driver
	}
}
