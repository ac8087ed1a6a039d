package oracle

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations that the controllers and the scheduler use to bind volumes, and the provisioner of classes without
// provisioning.
const (
	bindCompleted = "pv.kubernetes.io/bind-completed"
	selectedNode  = "volume.kubernetes.io/selected-node"
	noProvisioner = "kubernetes.io/no-provisioner"
)

// claimMissing refuses pods that name a claim that does not exist.
func claimMissing(c *simulation, pod *corev1.Pod) *filterRefusal {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && c.claim(pod.Namespace, v.PersistentVolumeClaim.ClaimName) == nil {
			return newUnresolvable(fmt.Sprintf("persistentvolumeclaim %q not found", v.PersistentVolumeClaim.ClaimName))
		}
	}
	return nil
}

// volumeRestrictions refuses nodes where another pod uses a disk of the pod. It refuses all nodes while another pod
// uses a ReadWriteOncePod claim of the pod.
func volumeRestrictions(c *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	for _, p := range c.podsOn(node) {
		for _, theirs := range p.Spec.Volumes {
			if slices.ContainsFunc(pod.Spec.Volumes, func(ours corev1.Volume) bool { return sameDisk(ours, theirs) }) {
				return newResolvable("node(s) had no available disk")
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := c.claim(pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		if !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			continue
		}
		for _, p := range c.pods {
			if p.pod.Namespace == pod.Namespace && slices.ContainsFunc(p.pod.Spec.Volumes, func(o corev1.Volume) bool {
				return o.PersistentVolumeClaim != nil && o.PersistentVolumeClaim.ClaimName == claim.Name
			}) {
				return newResolvable(
					"node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode")
			}
		}
	}
	return nil
}

// claimUnusable refuses pods with a claim that no node can make usable: a claim that is not yet created, is lost or is
// being deleted, belongs to another pod, or is unbound although only a controller binds it.
func claimUnusable(c *simulation, pod *corev1.Pod) *filterRefusal {
	for _, v := range pod.Spec.Volumes {
		name := claimName(pod, v)
		if name == "" {
			continue
		}
		claim := c.claim(pod.Namespace, name)
		switch {
		case claim == nil:
			return newUnresolvable(fmt.Sprintf(
				"waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name))
		case claim.Status.Phase == corev1.ClaimLost:
			return newUnresolvable(fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q",
				name, claim.Spec.VolumeName))
		case claim.DeletionTimestamp != nil:
			return newUnresolvable(fmt.Sprintf("persistentvolumeclaim %q is being deleted", name))
		case v.Ephemeral != nil && !metav1.IsControlledBy(claim, pod):
			return newUnresolvable(fmt.Sprintf("PVC %s/%s was not created for pod %s/%s (pod is not owner)",
				pod.Namespace, name, pod.Namespace, pod.Name))
		}
	}
	for _, claim := range c.podClaims(pod) {
		if !isBound(claim) && !c.waitsForConsumer(claim) {
			return newUnresolvable("pod has unbound immediate PersistentVolumeClaims")
		}
	}
	return nil
}

// isBound reports whether a claim is completely bound to its volume.
func isBound(claim *corev1.PersistentVolumeClaim) bool {
	_, completed := claim.Annotations[bindCompleted]
	return claim.Spec.VolumeName != "" && completed
}

// waitsForConsumer reports whether an unbound claim is only bound when a pod that uses it has a node.
func (c *simulation) waitsForConsumer(claim *corev1.PersistentVolumeClaim) bool {
	class := c.class(claimClass(claim))
	return claim.Spec.VolumeName == "" && class != nil && class.VolumeBindingMode != nil &&
		*class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// volumeBinding refuses nodes from which a bound volume cannot be reached. It also refuses nodes for which an unbound
// claim has neither a volume nor a provisioner that can create one there.
func volumeBinding(c *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	r := &filterRefusal{unresolvable: true}
	var unbound []*corev1.PersistentVolumeClaim
	missing := false
	for _, claim := range c.podClaims(pod) {
		if !isBound(claim) {
			unbound = append(unbound, claim)
			continue
		}
		if missing || len(r.reasons) > 0 {
			continue
		}
		pv := c.volume(claim.Spec.VolumeName)
		missing = pv == nil
		if pv != nil && !isReachable(pv, node) {
			r.reasons = append(r.reasons, "node(s) didn't match PersistentVolume's node affinity")
		}
	}
	if _, reason := c.bindable(unbound, node); reason != "" {
		r.reasons = append(r.reasons, reason)
	}
	if missing {
		r.reasons = append(r.reasons, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
	}
	if len(r.reasons) == 0 {
		return nil
	}
	return r
}

// isReachable reports whether a volume's node affinity admits the node.
func isReachable(pv *corev1.PersistentVolume, node *corev1.Node) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return true
	}
	return matchesTerms(pv.Spec.NodeAffinity.Required, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: node.Labels}})
}

// claimOutcome is the result for a claim on a node: an existing volume, or a new one from the capacity of its driver.
type claimOutcome struct {
	claim    *corev1.PersistentVolumeClaim
	volume   *corev1.PersistentVolume
	capacity *storagev1.CSIStorageCapacity
}

// bindable returns the outcomes of the claims, or the reason why there are none. Each claim gets a volume, the smallest
// claim first and for each the smallest volume, or is provisioned for the node. A claim for which a node was already
// selected is provisioned there.
func (c *simulation) bindable(claims []*corev1.PersistentVolumeClaim, node *corev1.Node) ([]claimOutcome, string) {
	const none = "node(s) didn't find available persistent volumes to bind"
	var find, provision []*corev1.PersistentVolumeClaim
	for _, claim := range claims {
		if chosen, ok := claim.Annotations[selectedNode]; !ok {
			find = append(find, claim)
		} else if provision = append(provision, claim); chosen != node.Name {
			return nil, none
		}
	}
	slices.SortStableFunc(find, func(a, b *corev1.PersistentVolumeClaim) int {
		return a.Spec.Resources.Requests.Storage().Cmp(*b.Spec.Resources.Requests.Storage())
	})
	var outcomes []claimOutcome
	taken := map[string]bool{}
	for _, claim := range find {
		if pv := c.matchVolume(claim, node, taken); pv != nil {
			taken[pv.Name] = true
			outcomes = append(outcomes, claimOutcome{claim: claim, volume: pv})
		} else {
			provision = append(provision, claim)
		}
	}
	for _, claim := range provision {
		class := c.class(claimClass(claim))
		if class.Provisioner == noProvisioner || !admitsTopology(class.AllowedTopologies, node) {
			return nil, none
		}
		room, enough := c.capacityFor(class, claim, node)
		if !enough {
			return nil, "node(s) did not have enough free storage"
		}
		outcomes = append(outcomes, claimOutcome{claim: claim, capacity: room})
	}
	return outcomes, ""
}

// matchVolume returns the volume that is reserved for the claim, or otherwise the smallest available volume that is
// large enough. Its class, modes and attributes class must be the claim's, the claim's selector must select it, and it
// must be reachable from the node.
func (c *simulation) matchVolume(
	claim *corev1.PersistentVolumeClaim,
	node *corev1.Node,
	taken map[string]bool,
) *corev1.PersistentVolume {
	var best *corev1.PersistentVolume
	for _, pv := range c.Volumes {
		ref := pv.Spec.ClaimRef
		mine := ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name &&
			(ref.UID == "" || ref.UID == claim.UID)
		if taken[pv.Name] || ref != nil && !mine || pv.DeletionTimestamp != nil ||
			volumeClass(pv) != claimClass(claim) ||
			pv.Spec.Capacity.Storage().Cmp(*claim.Spec.Resources.Requests.Storage()) < 0 ||
			volumeMode(pv.Spec.VolumeMode) != volumeMode(claim.Spec.VolumeMode) ||
			text(pv.Spec.VolumeAttributesClassName) != text(claim.Spec.VolumeAttributesClassName) {
			continue
		}
		if mine {
			if !isReachable(pv, node) {
				return nil
			}
			return pv
		}
		if pv.Status.Phase != corev1.VolumeAvailable || !isReachable(pv, node) ||
			claim.Spec.Selector != nil && !selects(claim.Spec.Selector, pv.Labels) ||
			slices.ContainsFunc(claim.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
				return !slices.Contains(pv.Spec.AccessModes, m)
			}) {
			continue
		}
		if best == nil || pv.Spec.Capacity.Storage().Cmp(*best.Spec.Capacity.Storage()) < 0 {
			best = pv
		}
	}
	return best
}

// admitsTopology reports whether the node has, for each label of one of the class's topologies, one of its values.
// Without topologies all nodes are admitted.
func admitsTopology(topologies []corev1.TopologySelectorTerm, node *corev1.Node) bool {
	return len(topologies) == 0 || slices.ContainsFunc(topologies, func(t corev1.TopologySelectorTerm) bool {
		for _, e := range t.MatchLabelExpressions {
			if value, has := node.Labels[e.Key]; !has || !slices.Contains(e.Values, value) {
				return false
			}
		}
		return len(t.MatchLabelExpressions) > 0
	})
}

// volumeMissing refuses pods with a claim bound to a volume that does not exist.
func volumeMissing(c *simulation, pod *corev1.Pod) *filterRefusal {
	for _, claim := range c.namedClaims(pod) {
		if claim.Spec.VolumeName != "" && c.volume(claim.Spec.VolumeName) == nil {
			return newUnresolvable(fmt.Sprintf("persistentvolume %q not found", claim.Spec.VolumeName))
		}
	}
	return nil
}

// volumeZone refuses nodes in another zone or region than that of a volume's labels. A node without any such label
// counts as being in all of them.
func volumeZone(c *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	current := map[string]string{
		corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
		corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
		corev1.LabelTopologyZone:            corev1.LabelTopologyZone,
		corev1.LabelTopologyRegion:          corev1.LabelTopologyRegion,
	}
	anywhere := true
	for key := range current {
		if _, has := node.Labels[key]; has {
			anywhere = false
		}
	}
	if anywhere {
		return nil
	}
	for _, claim := range c.namedClaims(pod) {
		pv := c.volume(claim.Spec.VolumeName)
		if pv == nil {
			continue
		}
		for key, now := range current {
			zones, has := pv.Labels[key]
			if !has || slices.Contains(strings.Split(zones, "__"), "") { // a label with an empty zone is ignored
				continue
			}
			value, has := node.Labels[key]
			if !has {
				value, has = node.Labels[now]
			}
			if !has || !slices.Contains(strings.Split(zones, "__"), value) {
				return newUnresolvable("node(s) had no available volume zone")
			}
		}
	}
	return nil
}

// podClaims returns the pod's claims that exist, including those of its ephemeral volumes.
func (c *simulation) podClaims(pod *corev1.Pod) []*corev1.PersistentVolumeClaim {
	var result []*corev1.PersistentVolumeClaim
	for _, v := range pod.Spec.Volumes {
		if claim := c.claim(pod.Namespace, claimName(pod, v)); claim != nil {
			result = append(result, claim)
		}
	}
	return result
}

// namedClaims returns the pod's claims that exist, without those of its ephemeral volumes.
func (c *simulation) namedClaims(pod *corev1.Pod) []*corev1.PersistentVolumeClaim {
	var result []*corev1.PersistentVolumeClaim
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			result = append(result, c.claim(pod.Namespace, v.PersistentVolumeClaim.ClaimName))
		}
	}
	return slices.DeleteFunc(result, func(claim *corev1.PersistentVolumeClaim) bool { return claim == nil })
}

func claimName(pod *corev1.Pod, v corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

func (w *World) claim(namespace, name string) *corev1.PersistentVolumeClaim {
	for _, claim := range w.Claims {
		if claim.Namespace == namespace && claim.Name == name {
			return claim
		}
	}
	return nil
}

func (w *World) csiNode(name string) *storagev1.CSINode {
	for _, n := range w.CSINodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func (w *World) csiDriver(name string) *storagev1.CSIDriver {
	for _, d := range w.CSIDrivers {
		if d.Name == name {
			return d
		}
	}
	return nil
}

func (w *World) volume(name string) *corev1.PersistentVolume {
	for _, pv := range w.Volumes {
		if pv.Name == name {
			return pv
		}
	}
	return nil
}

func (w *World) class(name string) *storagev1.StorageClass {
	for _, class := range w.Classes {
		if class.Name == name {
			return class
		}
	}
	return nil
}

func claimClass(claim *corev1.PersistentVolumeClaim) string {
	if class, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return text(claim.Spec.StorageClassName)
}

func volumeClass(pv *corev1.PersistentVolume) string {
	if class, ok := pv.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return pv.Spec.StorageClassName
}

func volumeMode(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
