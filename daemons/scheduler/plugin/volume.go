package plugin

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Volumes is what the plugins may know of claims and volumes.
type Volumes interface {
	Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool)
	Volume(name string) (*corev1.PersistentVolume, bool)
	Class(name string) (*storagev1.StorageClass, bool)
}

// volumes refuses nodes that cannot reach the volumes of the pod's claims, and all
// nodes while a claim that does not wait for its first user has no volume.
func volumes(pod *Pod, s *Snapshot) Check {
	var demands []*nodeaffinity.NodeSelector
	var all []string // what is wrong with every node
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = pod.Name + "-" + v.Name
		default:
			continue
		}
		demand, refusal := claimed(pod.Namespace, name, s)
		if refusal != "" {
			all = append(all, refusal)
		} else if demand != nil {
			demands = append(demands, demand)
		}
	}
	switch {
	case len(all) > 0:
		return func(*Node) []string { return all[:1] }
	case len(demands) == 0:
		return nil
	}
	return func(n *Node) []string {
		for _, d := range demands {
			if !d.Match(n.Node) {
				return []string{"node(s) didn't match PersistentVolume's node affinity"}
			}
		}
		return nil
	}
}

// claimed returns where a claim's volume can be reached, nil for anywhere.
func claimed(namespace, name string, s *Snapshot) (demand *nodeaffinity.NodeSelector, refusal string) {
	if s.Volumes == nil {
		return nil, ""
	}
	claim, ok := s.Volumes.Claim(namespace, name)
	if !ok {
		return nil, fmt.Sprintf("persistentvolumeclaim %q not found", name)
	}
	if claim.DeletionTimestamp != nil {
		return nil, fmt.Sprintf("persistentvolumeclaim %q is being deleted", name)
	}
	if claim.Spec.VolumeName == "" {
		return nil, unbound(claim, s)
	}
	volume, ok := s.Volumes.Volume(claim.Spec.VolumeName)
	if !ok {
		return nil, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	}
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return nil, ""
	}
	demand, err := nodeaffinity.NewNodeSelector(volume.Spec.NodeAffinity.Required)
	if err != nil {
		return nil, fmt.Sprintf("persistentvolume %q has an unreadable node affinity", volume.Name)
	}
	return demand, ""
}

// unbound says whether a claim without a volume is in the way: one whose class waits
// for the first user is not, since it is bound where that goes.
func unbound(claim *corev1.PersistentVolumeClaim, s *Snapshot) string {
	if name := claim.Spec.StorageClassName; name != nil {
		class, ok := s.Volumes.Class(*name)
		if ok && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer {
			return ""
		}
	}
	return "pod has unbound immediate PersistentVolumeClaims"
}
