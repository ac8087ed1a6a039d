package deployment

import (
	"cmp"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// currentSet returns the ReplicaSet that has d's template, or nil. If several have it, which only a fault can cause, it
// returns the oldest.
func currentSet(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) *appsv1.ReplicaSet {
	byAge := slices.Clone(sets)
	slices.SortFunc(byAge, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, set := range byAge {
		if sameTemplate(&set.Spec.Template, &d.Spec.Template) {
			return set
		}
	}
	return nil
}

// sameTemplate compares templates without the pod-template-hash label.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	delete(x.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(y.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return apiequality.Semantic.DeepEqual(x, y)
}

// rolloutLimits returns how many pods may exist above the wanted number during a rollout, and how many may be
// unavailable. They are never both zero.
func rolloutLimits(d *appsv1.Deployment) (surge, unavailable int32) {
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate == nil {
		return 0, 0
	}
	wanted := int(replicasOrDefault(d.Spec.Replicas))
	quarter := intstr.FromString("25%")
	rolling := d.Spec.Strategy.RollingUpdate
	s, errS := intstr.GetScaledValueFromIntOrPercent(cmp.Or(rolling.MaxSurge, &quarter), wanted, true)
	u, errU := intstr.GetScaledValueFromIntOrPercent(cmp.Or(rolling.MaxUnavailable, &quarter), wanted, false)
	if errS != nil || errU != nil || s == 0 && u == 0 {
		return max(int32(s), 0), 1
	}
	return replicaCount(int64(s)), int32(min(u, wanted))
}

// nextReplicas returns the replicas that each set should have next in a rolling update. The new set grows as far as
// surge allows, counting pods that sets have not deleted yet. Old sets shrink as far as availability allows, those with
// unavailable pods first. Sets whose number stays are left out.
//
// Sums are computed in 64 bits: replicas and maxSurge may each be as large as an int32 can be.
func nextReplicas(d *appsv1.Deployment, newSet *appsv1.ReplicaSet,
	old []*appsv1.ReplicaSet) map[*appsv1.ReplicaSet]int32 {
	wanted := int64(replicasOrDefault(d.Spec.Replicas))
	surge, unavailable := rolloutLimits(d)
	next := map[*appsv1.ReplicaSet]int32{}
	total := int64(replicasOrDefault(newSet.Spec.Replicas))
	available := int64(newSet.Status.AvailableReplicas)
	var oldTotal int64
	existing := max(total, int64(newSet.Status.Replicas))
	for _, set := range old {
		oldTotal += int64(replicasOrDefault(set.Spec.Replicas))
		existing += int64(max(replicasOrDefault(set.Spec.Replicas), set.Status.Replicas))
		available += int64(set.Status.AvailableReplicas)
	}
	total += oldTotal
	switch current := int64(replicasOrDefault(newSet.Spec.Replicas)); {
	case current > wanted:
		next[newSet] = int32(wanted)
		return next
	case current < wanted && existing < wanted+int64(surge):
		next[newSet] = int32(current + min(wanted+int64(surge)-existing, wanted-current))
		return next
	}
	if oldTotal == 0 {
		return next
	}
	// Unavailable pods of the new set reduce the number of old pods that may be removed.
	minAvailable := wanted - int64(unavailable)
	newUnavailable := int64(replicasOrDefault(newSet.Spec.Replicas) - newSet.Status.AvailableReplicas)
	room := total - minAvailable - newUnavailable
	if room <= 0 {
		return next
	}
	byAge := slices.Clone(old)
	slices.SortFunc(byAge,
		func(a, b *appsv1.ReplicaSet) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	// Remove unavailable pods of old sets first: they serve no traffic.
	for _, set := range byAge {
		current := replicasOrDefault(set.Spec.Replicas)
		if broken := min(int64(current-set.Status.AvailableReplicas), room); broken > 0 {
			next[set] = current - int32(broken)
			room -= broken
		}
	}
	room = min(room, available-minAvailable)
	for _, set := range byAge {
		if room <= 0 {
			break
		}
		current := replicasOrDefault(set.Spec.Replicas)
		if planned, ok := next[set]; ok {
			current = planned
		}
		if removable := min(int64(current), room); removable > 0 {
			next[set] = current - int32(removable)
			room -= removable
		}
	}
	return next
}

// proportionalReplicas returns the replicas that each set should have after the wanted number changed during a rollout.
// Every set grows or shrinks in proportion to its size. The rounding remainder goes to the largest set.
func proportionalReplicas(
	d *appsv1.Deployment,
	sets []*appsv1.ReplicaSet,
	before func(*appsv1.ReplicaSet) int64,
) map[*appsv1.ReplicaSet]int32 {
	next := map[*appsv1.ReplicaSet]int32{}
	var active []*appsv1.ReplicaSet
	var total int64
	for _, set := range sets {
		if n := replicasOrDefault(set.Spec.Replicas); n > 0 {
			active = append(active, set)
			total += int64(n)
		}
	}
	surge, _ := rolloutLimits(d)
	allowed := int64(0)
	if wanted := replicasOrDefault(d.Spec.Replicas); wanted > 0 {
		allowed = int64(wanted) + int64(surge)
	}
	change := allowed - total
	if change == 0 || total == 0 {
		return next
	}
	slices.SortFunc(active, func(a, b *appsv1.ReplicaSet) int {
		age := b.CreationTimestamp.Compare(a.CreationTimestamp.Time) // newer sets grow first
		if change < 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(replicasOrDefault(b.Spec.Replicas), replicasOrDefault(a.Spec.Replicas)), age)
	})
	left := change
	for _, set := range active {
		current := int64(replicasOrDefault(set.Spec.Replicas))
		var share int64
		if old := before(set); old > 0 {
			share = int64(math.Round(float64(current)*float64(allowed)/float64(old))) - current
		}
		if change > 0 {
			share = max(min(share, left), 0)
		} else {
			share = min(max(share, left), 0)
		}
		next[set] = replicaCount(current + share)
		left -= share
	}
	if left != 0 {
		next[active[0]] = replicaCount(int64(next[active[0]]) + left)
	}
	for set, n := range next {
		if n == replicasOrDefault(set.Spec.Replicas) {
			delete(next, set)
		}
	}
	return next
}

// replicaCount limits n to the range that a ReplicaSet accepts.
func replicaCount(n int64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

func replicasOrDefault(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}
