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
	Create []*corev1.Pod
	Mend   []*corev1.Pod // pods without their identity labels, in the form that they should have
	Delete []*corev1.Pod
}

// one is a pod with its ordinal.
type one struct {
	*corev1.Pod
	n int
}

func (o one) going() bool { return o.DeletionTimestamp != nil }

func (o one) ended() bool {
	return o.Status.Phase == corev1.PodFailed || o.Status.Phase == corev1.PodSucceeded
}

// healthy reports whether the pod is running, ready and not being deleted.
func (o one) healthy() bool {
	ready, _ := loop.Ready(o.Pod)
	return !o.going() && o.Status.Phase == corev1.PodRunning && ready
}

func (o one) of(r revision) bool { return o.Labels[appsv1.StatefulSetRevisionLabel] == r.name }

// Decide returns the actions that a set requires. current is the template that pods have, update the template that they
// should have. Both are equal unless an update is under way. pods are the set's own.
func Decide(set *appsv1.StatefulSet, current, update revision, pods []*corev1.Pod, now time.Time) (d Decision) {
	ordered := set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	there, condemned := divide(set, pods)
	minReady := time.Duration(set.Spec.MinReadySeconds) * time.Second
	available := func(o one) bool {
		return o.healthy() && loop.Available(o.Pod, minReady, now)
	}
	missing := replicas(set) - len(there) // includes pods that have ended, which are added below
	next := first(set)                    // the next ordinal to create; lower ones are done
	create := func(until int) {
		for ; next < until && len(d.Create) < loop.Burst; next++ {
			d.Create = append(d.Create, newPod(set, next, wanted(set, next, current, update)))
			if ordered {
				return
			}
		}
	}
	for _, o := range there {
		if create(o.n); ordered && len(d.Create) > 0 {
			return d
		}
		next = o.n + 1
		switch {
		case o.ended() && !o.going():
			d.Delete = append(d.Delete, o.Pod) // and is created again
			missing++
			if ordered {
				return d
			}
			continue
		case !o.going() && !identified(o.Pod, o.n) && len(d.Mend) < loop.Burst:
			mended := o.DeepCopy()
			if mended.Labels == nil {
				mended.Labels = map[string]string{}
			}
			identify(set, mended, o.n)
			d.Mend = append(d.Mend, mended)
		}
		if ordered && !available(o) {
			return d
		}
	}
	if create(first(set) + replicas(set)); ordered && len(d.Create) > 0 {
		return d
	}
	defer func() { d.Delete = d.Delete[:min(len(d.Delete), loop.Burst)] }()
	if stop := d.shrink(condemned, there, ordered, available); stop {
		return d
	}
	d.roll(set, update, there, missing, available)
	return d
}

// divide splits the pods, each with its ordinal, into those within the set's replicas and those in excess.
func divide(set *appsv1.StatefulSet, pods []*corev1.Pod) (there, condemned []one) {
	for _, pod := range pods {
		n, ok := ordinal(set, pod)
		if !ok {
			continue
		}
		if n >= first(set) && n < first(set)+replicas(set) {
			there = append(there, one{pod, n})
		} else {
			condemned = append(condemned, one{pod, n})
		}
	}
	byNumber := func(a, b one) int { return a.n - b.n }
	slices.SortFunc(there, byNumber)
	slices.SortFunc(condemned, byNumber)
	return there, condemned
}

// wanted returns the template for a new pod. Pods below the partition get the current template.
func wanted(set *appsv1.StatefulSet, n int, current, update revision) revision {
	if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType || n >= first(set)+partition(set) {
		return update
	}
	return current
}

func partition(set *appsv1.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return int(*r.Partition)
	}
	return 0
}

// shrink deletes the last of the excess pods, or all of them if the set is not ordered. stop reports that nothing else
// may be done in this sync.
func (d *Decision) shrink(condemned, there []one, ordered bool, available func(one) bool) (stop bool) {
	var unavailable *one // the first unavailable pod; of the unavailable ones, only it may be deleted
	for _, o := range append(slices.Clone(there), condemned...) {
		if !available(o) {
			unavailable = &o
			break
		}
	}
	for _, o := range slices.Backward(condemned) {
		switch {
		case o.going() && ordered:
			return true
		case o.going():
			continue
		case ordered && !available(o) && !o.ended() && (unavailable == nil || unavailable.UID != o.UID):
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

// roll deletes pods that do not have the update template, the last first. It deletes as many at a time as may be
// unavailable. They are created again with the update template.
func (d *Decision) roll(set *appsv1.StatefulSet, update revision, there []one, missing int, available func(one) bool) {
	if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return
	}
	budget, down := maxUnavailable(set), missing
	gone := map[*corev1.Pod]bool{}
	for _, pod := range d.Delete {
		gone[pod] = true
	}
	var old []one
	for _, o := range there {
		if gone[o.Pod] {
			continue // already counted as missing
		}
		if !available(o) { // pods below the partition count too
			down++
		}
		if o.n >= first(set)+partition(set) && !o.of(update) && !o.going() {
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
	n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, replicas(set), true)
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
	there, condemned := divide(set, pods)
	for _, o := range append(there, condemned...) {
		s.Replicas++
		// also counts pods that are being deleted
		if ready, _ := loop.Ready(o.Pod); ready && o.Status.Phase == corev1.PodRunning {
			s.ReadyReplicas++
			if loop.Available(o.Pod, time.Duration(set.Spec.MinReadySeconds)*time.Second, now) {
				s.AvailableReplicas++
			}
		}
		if o.going() {
			continue
		}
		if o.of(current) {
			s.CurrentReplicas++
		}
		if o.of(update) {
			s.UpdatedReplicas++
		}
	}
	// An update is complete when all pods have its template and are ready. Its revision then becomes the current one.
	if n := int32(replicas(set)); set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType &&
		s.UpdatedReplicas == n && s.ReadyReplicas == n && s.Replicas == n {
		s.CurrentRevision, s.CurrentReplicas = s.UpdateRevision, s.UpdatedReplicas
	}
	return s
}
