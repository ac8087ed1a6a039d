package loop

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

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

func deletionCost(pod *corev1.Pod) int {
	cost, err := strconv.Atoi(pod.Annotations[corev1.PodDeletionCost])
	if err != nil {
		return 0
	}
	return cost
}
