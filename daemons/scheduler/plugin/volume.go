package plugin

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/scheduler/cluster"
)

var (
	diskConflict  = resolvableRefusal("VolumeRestrictions", "node(s) had no available disk")
	claimConflict = resolvableRefusal("VolumeRestrictions",
		"node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode")
	tooManyVolumes = resolvableRefusal("NodeVolumeLimits", "node(s) exceed max volume count")
	zoneMismatch   = finalRefusal("VolumeZone", "node(s) had no available volume zone")
	claimsUnbound  = finalRefusal("VolumeBinding", "pod has unbound immediate PersistentVolumeClaims")
	bindingReasons = [4]string{
		"node(s) didn't match PersistentVolume's node affinity",
		"node(s) didn't find available persistent volumes to bind",
		"node(s) did not have enough free storage",
		"node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
	}
	bindingRefusals = func() (out [16]*Refusal) {
		for bits := range out {
			r := &Refusal{Plugin: "VolumeBinding", IsFinal: true}
			for i, text := range bindingReasons {
				if bits&(1<<i) != 0 {
					r.Reasons = append(r.Reasons, text)
				}
			}
			out[bits] = r
		}
		return out
	}()
)

// claimMissing refuses pods that name a claim which does not exist.
func claimMissing(t *Task) *Refusal {
	for _, v := range t.Pod.Volumes {
		if !v.Ephemeral && t.Storage.Claim(t.Pod.Namespace, v.Claim) == nil {
			return finalRefusal("VolumeRestrictions", fmt.Sprintf("persistentvolumeclaim %q not found", v.Claim))
		}
	}
	return nil
}

// volumeRestrictions refuses nodes on which another pod uses a conflicting disk. It refuses all nodes while another pod
// uses one of the pod's ReadWriteOncePod claims.
func volumeRestrictions(t *Task) Check {
	var single []string
	for _, key := range t.Pod.Claims {
		_, name, _ := strings.Cut(key, "/")
		claim := t.Storage.Claim(t.Pod.Namespace, name)
		if claim != nil && slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			single = append(single, key)
		}
	}
	disks := t.Pod.Disks
	if len(single)+len(disks) == 0 {
		return nil
	}
	return func(n *cluster.Node) *Refusal {
		if len(disks) > 0 && isDiskInUse(disks, n) {
			return diskConflict
		}
		for _, key := range single {
			if t.ClaimUsers(key) > 0 {
				return claimConflict
			}
		}
		return nil
	}
}

// disksHint reports whether a pod that ended used a disk or claim of the pod, or whether an object is one of the
// pod's claims.
func disksHint(t *Task, what ClusterEvent) bool {
	switch {
	case what.EventKind == StorageChanged:
		return isOwnClaim(t, what.Storage, false)
	case what.EventKind == DomainsChanged:
		return what.Node == nil // a node was removed, with pods that used the claims
	case what.Pod == nil:
		return true
	case what.StillOnNode:
		return false
	}
	theirs := what.Pod.Shape
	return slices.ContainsFunc(t.Pod.Claims, func(key string) bool { return slices.Contains(theirs.Claims, key) }) ||
		slices.ContainsFunc(t.Pod.Disks, func(d cluster.Disk) bool {
			return slices.ContainsFunc(theirs.Disks, func(o cluster.Disk) bool { return d.Conflicts(&o) })
		})
}

// isOwnClaim reports whether an object is one of the pod's claims. For objects that are not claims it returns others.
func isOwnClaim(t *Task, obj any, others bool) bool {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return others || obj == nil
	}
	return claim.Namespace == t.Pod.Namespace &&
		slices.ContainsFunc(t.Pod.Volumes, func(v cluster.Volume) bool { return v.Claim == claim.Name })
}

// limitsHint reports whether a pod that ended may have had attached volumes, or whether an object affects the
// limits.
func limitsHint(t *Task, what ClusterEvent) bool {
	if what.EventKind == StorageChanged {
		_, capacity := what.Storage.(*storagev1.CSIStorageCapacity)
		return isOwnClaim(t, what.Storage, !capacity)
	}
	return what.Pod == nil || !what.StillOnNode && what.Pod.HasAttachable()
}

// bindingHint reports whether an object may help to bind the pod's claims.
func bindingHint(t *Task, what ClusterEvent) bool {
	_, attachment := what.Storage.(*storagev1.VolumeAttachment)
	return what.EventKind != StorageChanged || isOwnClaim(t, what.Storage, !attachment)
}

// zoneHint reports whether an object may determine the zone of one of the pod's volumes.
func zoneHint(t *Task, what ClusterEvent) bool {
	switch what.Storage.(type) {
	case nil, *corev1.PersistentVolume, *storagev1.StorageClass:
		return true
	}
	return isOwnClaim(t, what.Storage, false)
}

func isDiskInUse(disks []cluster.Disk, n *cluster.Node) bool {
	for _, p := range n.Pods {
		for i := range p.Disks {
			if slices.ContainsFunc(disks, func(d cluster.Disk) bool { return d.Conflicts(&p.Disks[i]) }) {
				return true
			}
		}
	}
	return false
}

// volumeLimits refuses nodes without a required driver, and nodes to which a driver could not attach all volumes. A
// volume that several pods use counts once. So does a volume that is attached without a pod on the node.
func volumeLimits(t *Task) Check {
	if !t.Pod.HasAttachable() {
		return nil
	}
	plain, all := map[string]string{}, map[string]string{}
	t.Storage.AddAttachable(t.Pod.Shape, false, plain)
	t.Storage.AddAttachable(t.Pod.Shape, true, all)
	if len(all) == 0 {
		return nil
	}
	return func(n *cluster.Node) *Refusal {
		node, wants := t.Storage.NodeDrivers(n.Name), plain
		if node != nil {
			wants = all
		}
		if missing := missingDriver(t, wants, node); missing != "" {
			return resolvableRefusal("NodeVolumeLimits", missing+" CSI driver is not installed on the node")
		}
		if node == nil || len(node.Limits) == 0 || len(wants) == 0 {
			return nil
		}
		attached := map[string]string{}
		for _, p := range n.Pods {
			if p.HasAttachable() {
				t.Storage.AddAttachable(p.Shape, true, attached)
			}
		}
		more := map[string]int{}
		for volume, driver := range wants {
			if _, ok := attached[volume]; !ok {
				more[driver]++
			}
		}
		t.Storage.AddAttached(n.Name, attached)
		existing := map[string]int{}
		for _, driver := range attached {
			existing[driver]++
		}
		for driver, count := range more {
			if limit, limited := node.Limits[driver]; limited && existing[driver]+count > limit {
				return tooManyVolumes
			}
		}
		return nil
	}
}

// missingDriver returns the first driver, by name, that must be on the node and is not, or "".
func missingDriver(t *Task, volumes map[string]string, node *cluster.NodeDrivers) (missing string) {
	for _, driver := range volumes {
		if (node == nil || !node.Drivers[driver]) && (missing == "" || driver < missing) &&
			t.Storage.RequiresDriver(driver) {
			missing = driver
		}
	}
	return missing
}

// UnboundClaims returns the pod's claims that are bound only after it has a node.
func UnboundClaims(t *Task) []*corev1.PersistentVolumeClaim {
	var out []*corev1.PersistentVolumeClaim
	for _, v := range t.Pod.Volumes {
		if claim := t.Storage.Claim(t.Pod.Namespace, v.Claim); claim != nil && !cluster.IsBound(claim) {
			out = append(out, claim)
		}
	}
	return out
}

// claimUnusable refuses pods with a claim that no node can make usable: it does not exist yet, is lost, is being
// deleted, belongs to another owner, or has to be bound by the binder first.
func claimUnusable(t *Task) *Refusal {
	for _, v := range t.Pod.Volumes {
		claim := t.Storage.Claim(t.Pod.Namespace, v.Claim)
		reason := ""
		switch {
		case claim == nil && v.Ephemeral:
			reason = fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q",
				v.Claim)
		case claim == nil:
			reason = fmt.Sprintf("persistentvolumeclaim %q not found", v.Claim)
		case claim.Status.Phase == corev1.ClaimLost:
			reason = fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", v.Claim,
				claim.Spec.VolumeName)
		case claim.DeletionTimestamp != nil:
			reason = fmt.Sprintf("persistentvolumeclaim %q is being deleted", v.Claim)
		case v.Ephemeral && !metav1.IsControlledBy(claim, t.Pod):
			reason = fmt.Sprintf("PVC %s/%s was not created for pod %s (pod is not owner)", t.Pod.Namespace, v.Claim,
				t.Pod.Key())
		default:
			continue
		}
		return finalRefusal("VolumeBinding", reason)
	}
	for _, claim := range UnboundClaims(t) {
		if !t.Storage.WaitsForPod(claim) {
			return claimsUnbound
		}
	}
	return nil
}

// volumeBinding refuses nodes that cannot reach a bound volume, and nodes for which an unbound claim has neither a
// volume nor a provisioner.
func volumeBinding(t *Task) Check {
	if len(t.Pod.Volumes) == 0 {
		return nil
	}
	var bound []*cluster.PersistentVolume
	unbound, missing := UnboundClaims(t), false
	for _, v := range t.Pod.Volumes {
		claim := t.Storage.Claim(t.Pod.Namespace, v.Claim)
		if claim == nil || !cluster.IsBound(claim) {
			continue
		}
		volume := t.Storage.Volume(claim.Spec.VolumeName)
		if volume == nil {
			missing = true
			break
		}
		bound = append(bound, volume)
	}
	return func(n *cluster.Node) *Refusal {
		bits := 0
		for _, v := range bound {
			if !v.IsReachable(n) {
				bits = 1
				break
			}
		}
		switch _, verdict := t.Storage.Decide(unbound, n); verdict {
		case cluster.NoVolume:
			bits |= 2
		case cluster.CapacityTooSmall:
			bits |= 4
		}
		if missing && bits&1 == 0 {
			bits |= 8
		}
		if bits == 0 {
			return nil
		}
		return bindingRefusals[bits]
	}
}

// volumeScore rates how much of the volumes, or of the capacity, the pod's unbound claims take on a node.
func volumeScore(t *Task, _ []*cluster.Node) Rate {
	unbound, shape := UnboundClaims(t), Strategy{Kind: RequestedToCapacityRatio, Shape: t.Args.VolumeShape}
	if len(unbound) == 0 {
		return nil
	}
	return func(n *cluster.Node) int64 {
		decisions, _ := t.Storage.Decide(unbound, n)
		by := cluster.SumByClass(decisions)
		if len(by) == 0 {
			return 0
		}
		var sum int64
		for _, r := range by {
			if r.Capacity == 0 {
				sum += shape.scoreAt(100)
			} else {
				sum += shape.rate(r.Requested, r.Capacity)
			}
		}
		return int64(math.Round(float64(sum) / float64(len(by))))
	}
}

// volumeMissing refuses pods with a claim that is bound to a volume which does not exist.
func volumeMissing(t *Task) *Refusal {
	for _, v := range t.Pod.Volumes {
		if v.Ephemeral {
			continue
		}
		claim := t.Storage.Claim(t.Pod.Namespace, v.Claim)
		if claim != nil && claim.Spec.VolumeName != "" && t.Storage.Volume(claim.Spec.VolumeName) == nil {
			return finalRefusal("VolumeZone", fmt.Sprintf("persistentvolume %q not found", claim.Spec.VolumeName))
		}
	}
	return nil
}

// zoneLabels lists the labels of volumes that name a zone or region, with the corresponding labels of nodes.
var zoneLabels = []struct{ key, now string }{
	{
		corev1.LabelFailureDomainBetaZone,
		corev1.LabelTopologyZone,
	}, {corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion},
	{corev1.LabelTopologyZone, corev1.LabelTopologyZone}, {corev1.LabelTopologyRegion, corev1.LabelTopologyRegion},
}

// volumeZone refuses nodes in another zone or region than a volume's labels name. A node without any such label fits
// all.
func volumeZone(t *Task) Check {
	type demand struct {
		key, now string
		values   []string
	}
	var demands []demand
	for _, v := range t.Pod.Volumes {
		if v.Ephemeral {
			continue
		}
		claim := t.Storage.Claim(t.Pod.Namespace, v.Claim)
		if claim == nil {
			continue
		}
		volume := t.Storage.Volume(claim.Spec.VolumeName)
		if volume == nil {
			continue
		}
		for _, l := range zoneLabels {
			zones, ok := volume.Labels[l.key]
			if values := strings.Split(zones, "__"); ok &&
				!slices.Contains(values, "") { // a label with an empty zone is ignored
				demands = append(demands, demand{l.key, l.now, values})
			}
		}
	}
	if len(demands) == 0 {
		return nil
	}
	return func(n *cluster.Node) *Refusal {
		if !slices.ContainsFunc(zoneLabels,
			func(l struct{ key, now string }) bool { _, ok := n.Labels[l.key]; return ok }) {
			return nil
		}
		for _, d := range demands {
			value, ok := n.Labels[d.key]
			if !ok {
				value, ok = n.Labels[d.now]
			}
			if !ok || !slices.Contains(d.values, value) {
				return zoneMismatch
			}
		}
		return nil
	}
}
