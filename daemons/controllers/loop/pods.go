package loop

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// IsReady reports whether a pod's Ready condition is true, and since when.
func IsReady(pod *corev1.Pod) (bool, time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// IsAvailable reports whether a pod has been ready for at least minReady.
func IsAvailable(pod *corev1.Pod, minReady time.Duration, now time.Time) bool {
	ready, since := IsReady(pod)
	return ready && (minReady == 0 || !since.IsZero() && !since.Add(minReady).After(now))
}

// UntilAvailable returns how long it takes until the next of the pods has been ready for minReady. It returns zero if
// there is no such pod. No event marks that time, so each sync must set a timer for it, also after a change of the
// leader.
func UntilAvailable(pods []*corev1.Pod, minReady time.Duration, now time.Time) (minimum time.Duration) {
	for _, pod := range pods {
		ready, since := IsReady(pod)
		if left := since.Add(minReady).Sub(now); ready && left > 0 && (minimum == 0 || left < minimum) {
			minimum = left
		}
	}
	return minimum
}

// IsActive reports whether a pod has not finished and is not being deleted.
func IsActive(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed &&
		pod.DeletionTimestamp == nil
}

// PodFromTemplate returns a new pod that owner controls, built from its template.
func PodFromTemplate(template *corev1.PodTemplateSpec, owner metav1.Object, kind schema.GroupVersionKind) *corev1.Pod {
	copied := template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), GenerateName: generateName(owner.GetName()),
			Labels: copied.Labels, Annotations: copied.Annotations, Finalizers: copied.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Spec: copied.Spec,
	}
	return pod
}

// generateName leaves room for the random suffix within the 63 characters of a host name.
func generateName(owner string) string {
	const limit = 63 - 5 - 1
	if len(owner) > limit {
		owner = owner[:limit]
	}
	return owner + "-"
}

// DeletionOrder sorts pods so that those whose loss costs least come first. The criteria are: not scheduled, pending,
// not ready, lower deletion cost, on nodes with many related pods, ready for a shorter time, more restarts, younger.
// together holds the number of related pods by node. Ages of the same order of magnitude count as equal. Otherwise the
// youngest would always go, and those may all be in one zone.
func DeletionOrder(pods []*corev1.Pod, together map[string]int, now time.Time) {
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		readyA, sinceA := IsReady(a)
		readyB, sinceB := IsReady(b)
		return cmp.Or(compareTrueFirst(a.Spec.NodeName == "", b.Spec.NodeName == ""),
			cmp.Compare(phaseRank(a), phaseRank(b)), compareTrueFirst(!readyA, !readyB),
			cmp.Compare(deletionCost(a), deletionCost(b)), cmp.Compare(together[b.Spec.NodeName],
				together[a.Spec.NodeName]), compareAge(sinceA, sinceB, a, b, now, readyA && readyB),
			cmp.Compare(restartCount(b), restartCount(a)), compareAge(a.CreationTimestamp.Time,
				b.CreationTimestamp.Time, a, b, now, true))
	})
}

// compareAge compares how long ago two times are, by order of magnitude. The later time comes first, and an unknown
// time before all. Different times of the same magnitude are ordered by the pods' UIDs.
func compareAge(atA, atB time.Time, a, b *corev1.Pod, now time.Time, matters bool) int {
	switch {
	case !matters || atA.Equal(atB):
		return 0
	case atA.IsZero() || atB.IsZero():
		return compareTrueFirst(atA.IsZero(), atB.IsZero())
	}
	return cmp.Or(cmp.Compare(magnitude(now.Sub(atA)), magnitude(now.Sub(atB))), cmp.Compare(a.UID, b.UID))
}

func magnitude(age time.Duration) int {
	if age <= 0 {
		return -1
	}
	return int(math.Log2(float64(age)))
}

func compareTrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func phaseRank(pod *corev1.Pod) int {
	switch pod.Status.Phase {
	case corev1.PodPending:
		return 0
	case corev1.PodUnknown:
		return 1
	}
	return 2
}

func restartCount(pod *corev1.Pod) (maximum int32) {
	for _, c := range pod.Status.ContainerStatuses {
		maximum = max(maximum, c.RestartCount)
	}
	return maximum
}

// Burst is the maximum number of pods that a sync of a controller creates, and the maximum that it deletes. Clients
// choose the number of replicas. The limit keeps lists short, lets other objects be reconciled, and lets the controller
// notice a deletion in between.
const Burst = 500

// InBatches calls f n times, in batches that double from one while all calls succeed. A quota or a broken webhook is
// then hit once and not a thousand times. It stops before a batch for which still returns false. It returns how many
// calls were made and their errors.
func InBatches(ctx context.Context, n int, still func() bool, f func(ctx context.Context, i int) error) (int, error) {
	const widest = 64
	done := 0
	for batch := 1; done < n && still(); batch = min(batch*2, widest) {
		size := min(batch, n-done)
		errs := make([]error, size)
		var wg sync.WaitGroup
		for i := range size {
			wg.Go(func() { errs[i] = f(ctx, done+i) })
		}
		wg.Wait()
		done += size
		if err := errors.Join(errs...); err != nil {
			return done, err
		}
	}
	return done, nil
}

// HasSameSpec reports whether an object is still the same object with the same spec, and is not being deleted.
func HasSameSpec(after, before metav1.Object) bool {
	return after.GetUID() == before.GetUID() && after.GetGeneration() == before.GetGeneration() &&
		after.GetDeletionTimestamp() == nil
}

func deletionCost(pod *corev1.Pod) int {
	cost, err := strconv.Atoi(pod.Annotations[corev1.PodDeletionCost])
	if err != nil {
		return 0
	}
	return cost
}
