package podgc

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// podToDelete is a pod to delete.
type podToDelete struct {
	pod        *corev1.Pod
	isOrphaned bool   // its node is gone, which a condition should report
	reason     string // label of the metric
}

// PodsToDelete returns the pods to delete. lost holds the nodes that are gone, and out those that are out of service.
// threshold is how many finished pods may stay; zero means all.
func PodsToDelete(pods []*corev1.Pod, lost, out map[string]bool, threshold int) []podToDelete {
	var list []podToDelete
	var done []*corev1.Pod
	for _, pod := range pods {
		terminating := pod.DeletionTimestamp != nil
		switch {
		case lost[pod.Spec.NodeName]:
			list = append(list, podToDelete{pod, true, "orphaned"})
		case terminating && pod.Spec.NodeName == "":
			list = append(list, podToDelete{pod, false, "unscheduled"})
		case terminating && out[pod.Spec.NodeName]:
			list = append(list, podToDelete{pod, false, "out-of-service"})
		case !terminating && isFinished(pod):
			done = append(done, pod)
		}
	}
	excess := len(done) - threshold
	if threshold <= 0 || excess <= 0 {
		return list
	}
	slices.SortFunc(done, func(a, b *corev1.Pod) int { // evicted pods first, then the oldest
		return cmp.Or(compareTrueFirst(isEvicted(a), isEvicted(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range done[:excess] {
		list = append(list, podToDelete{pod, false, "terminated"})
	}
	return list
}

// outOfServiceNodes returns the nodes that are not ready and have the taint out-of-service. The taint means that
// everything on the node has certainly stopped, and that no kubelet can report it.
func outOfServiceNodes(nodes []*corev1.Node) map[string]bool {
	out := map[string]bool{}
	for _, n := range nodes {
		tainted := slices.ContainsFunc(n.Spec.Taints,
			func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if tainted && !ready {
			out[n.Name] = true
		}
	}
	return out
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isEvicted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted"
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
