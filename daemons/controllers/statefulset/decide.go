package statefulset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/daemons/controllers/loop"
)

// revision is a current or former template of a set.
type revision struct {
	name     string
	template *corev1.PodTemplateSpec
}

// Decision holds the actions that a set requires now. Each list has at most loop.Burst pods.
type Decision struct {
	Create  []*corev1.Pod
	Relabel []*corev1.Pod // pods without their identity labels, in the form that they should have
	Delete  []*corev1.Pod
}

// ordinalPod is a pod with its ordinal.
type ordinalPod struct {
	*corev1.Pod
	ordinal int
}

func (o ordinalPod) isDeleting() bool { return o.DeletionTimestamp != nil }

func (o ordinalPod) hasEnded() bool {
	return o.Status.Phase == corev1.PodFailed || o.Status.Phase == corev1.PodSucceeded
}

// isHealthy reports whether the pod is running, ready and not being deleted.
func (o ordinalPod) isHealthy() bool {
	ready, _ := loop.IsReady(o.Pod)
	return !o.isDeleting() && o.Status.Phase == corev1.PodRunning && ready
}

func (o ordinalPod) hasRevision(r revision) bool {
	return o.Labels[appsv1.StatefulSetRevisionLabel] == r.name
}

// Decide returns the actions that a set requires. current is the template that pods have, update the template that they
// should have. Both are equal unless an update is under way. pods are the set's own.
func Decide(set *appsv1.StatefulSet, current, update revision, pods []*corev1.Pod, now time.Time) (d Decision) {
	ordered := set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	existing, condemned := splitExcess(set, pods)
	minReady := time.Duration(set.Spec.MinReadySeconds) * time.Second
	available := func(o ordinalPod) bool {
		return o.isHealthy() && loop.IsAvailable(o.Pod, minReady, now)
	}
	missing := replicasOrDefault(set) - len(existing) // includes pods that have ended, which are added below
	next := firstOrdinal(set)                         // the next ordinal to create; lower ones are done
	create := func(until int) {
		for ; next < until && len(d.Create) < loop.Burst; next++ {
			d.Create = append(d.Create, newPod(set, next, revisionFor(set, next, current, update)))
			if ordered {
				return
			}
		}
	}
	for _, o := range existing {
		if create(o.ordinal); ordered && len(d.Create) > 0 {
			return d
		}
		next = o.ordinal + 1
		switch {
		case o.hasEnded() && !o.isDeleting():
			d.Delete = append(d.Delete, o.Pod) // and is created again
			missing++
			if ordered {
				return d
			}
			continue
		case !o.isDeleting() && !hasIdentity(o.Pod, o.ordinal) && len(d.Relabel) < loop.Burst:
			mended := o.DeepCopy()
			if mended.Labels == nil {
				mended.Labels = map[string]string{}
			}
			setIdentity(set, mended, o.ordinal)
			d.Relabel = append(d.Relabel, mended)
		}
		if ordered && !available(o) {
			return d
		}
	}
	if create(firstOrdinal(set) + replicasOrDefault(set)); ordered && len(d.Create) > 0 {
		return d
	}
	defer func() { d.Delete = d.Delete[:min(len(d.Delete), loop.Burst)] }()
	if stop := d.deleteExcess(condemned, existing, ordered, available); stop {
		return d
	}
	d.deleteOutdated(set, update, existing, missing, available)
	return d
}

// splitExcess splits the pods, each with its ordinal, into those within the set's replicas and those in excess.
func splitExcess(set *appsv1.StatefulSet, pods []*corev1.Pod) (existing, condemned []ordinalPod) {
	for _, pod := range pods {
		n, ok := ordinalOf(set, pod)
		if !ok {
			continue
		}
		if n >= firstOrdinal(set) && n < firstOrdinal(set)+replicasOrDefault(set) {
			existing = append(existing, ordinalPod{pod, n})
		} else {
			condemned = append(condemned, ordinalPod{pod, n})
		}
	}
	byNumber := func(a, b ordinalPod) int { return a.ordinal - b.ordinal }
	slices.SortFunc(existing, byNumber)
	slices.SortFunc(condemned, byNumber)
	return existing, condemned
}

// revisionFor returns the template for a new pod. Pods below the partition get the current template.
func revisionFor(set *appsv1.StatefulSet, n int, current, update revision) revision {
	if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType ||
		n >= firstOrdinal(set)+partitionOf(set) {
		return update
	}
	return current
}

func partitionOf(set *appsv1.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return int(*r.Partition)
	}
	return 0
}

// deleteExcess deletes the last of the excess pods, or all of them if the set is not ordered. stop reports that nothing
// else may be done in this sync.
func (d *Decision) deleteExcess(condemned, existing []ordinalPod, ordered bool,
	available func(ordinalPod) bool) (stop bool) {
	var unavailable *ordinalPod // the first unavailable pod; of the unavailable ones, only it may be deleted
	for _, o := range append(slices.Clone(existing), condemned...) {
		if !available(o) {
			unavailable = &o
			break
		}
	}
	for _, o := range slices.Backward(condemned) {
		switch {
		case o.isDeleting() && ordered:
			return true
		case o.isDeleting():
			continue
		case ordered && !available(o) && !o.hasEnded() && (unavailable == nil || unavailable.UID != o.UID):
			// a pod that has ended never becomes available
			return true
		}
		d.Delete = append(d.Delete, o.Pod)
		if ordered {
			return true
		}
	}
	return false
}

// deleteOutdated deletes pods that do not have the update template, the last first. It deletes as many at a time as may
// be unavailable. They are created again with the update template.
func (d *Decision) deleteOutdated(set *appsv1.StatefulSet, update revision, existing []ordinalPod, missing int,
	available func(ordinalPod) bool) {
	if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return
	}
	budget, down := maxUnavailable(set), missing
	removed := map[*corev1.Pod]bool{}
	for _, pod := range d.Delete {
		removed[pod] = true
	}
	var old []ordinalPod
	for _, o := range existing {
		if removed[o.Pod] {
			continue // already counted as missing
		}
		if !available(o) { // pods below the partition count too
			down++
		}
		if o.ordinal >= firstOrdinal(set)+partitionOf(set) && !o.hasRevision(update) && !o.isDeleting() {
			old = append(old, o)
		}
	}
	for _, o := range slices.Backward(old) {
		if available(o) { // deleting a pod that is already unavailable does not reduce availability
			if down >= budget {
				return
			}
			down++
		}
		d.Delete = append(d.Delete, o.Pod)
	}
}

// maxUnavailable returns how many pods may be unavailable during an update. The default is one. A percentage is taken
// of all replicas and rounded up, with a minimum of one.
func maxUnavailable(set *appsv1.StatefulSet) int {
	r := set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || r.MaxUnavailable == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, replicasOrDefault(set), true)
	if err != nil {
		return 1
	}
	return max(n, 1)
}

// Status returns the status that a set should have.
func Status(
	set *appsv1.StatefulSet,
	current, update revision,
	pods []*corev1.Pod,
	now time.Time,
) appsv1.StatefulSetStatus {
	s := *set.Status.DeepCopy()
	s.ObservedGeneration, s.CurrentRevision, s.UpdateRevision = set.Generation, current.name, update.name
	s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas = 0, 0, 0, 0, 0
	if s.CollisionCount == nil {
		s.CollisionCount = new(int32)
	}
	existing, condemned := splitExcess(set, pods)
	for _, o := range append(existing, condemned...) {
		s.Replicas++
		// also counts pods that are being deleted
		if ready, _ := loop.IsReady(o.Pod); ready && o.Status.Phase == corev1.PodRunning {
			s.ReadyReplicas++
			if loop.IsAvailable(o.Pod, time.Duration(set.Spec.MinReadySeconds)*time.Second, now) {
				s.AvailableReplicas++
			}
		}
		if o.isDeleting() {
			continue
		}
		if o.hasRevision(current) {
			s.CurrentReplicas++
		}
		if o.hasRevision(update) {
			s.UpdatedReplicas++
		}
	}
	// An update is complete when all pods have its template and are ready. Its revision then becomes the current one.
	if n := int32(replicasOrDefault(
		set)); set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType &&
		s.UpdatedReplicas == n && s.ReadyReplicas == n && s.Replicas == n {
		s.CurrentRevision, s.CurrentReplicas = s.UpdateRevision, s.UpdatedReplicas
	}
	return s
}
