package workload

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// mostPods is how many pods are looked at for a reason; one is told.
const mostPods = 50

// why says what holds up one of the pods of what is not healthy: that nothing takes it, or that a container of it
// does not come up. It is "" when nothing is known, or nothing is wrong but that it takes time.
func (l *Live) why(ctx context.Context, live *unstructured.Unstructured) string {
	labels, _, err := unstructured.NestedStringMap(live.Object, "spec", "selector", "matchLabels")
	if err != nil || len(labels) == 0 {
		return ""
	}
	client, err := l.client(corev1.SchemeGroupVersion.WithKind("Pod"), live.GetNamespace())
	if err != nil {
		return ""
	}
	list, err := client.List(
		ctx,
		metav1.ListOptions{
			LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels}),
			Limit:         mostPods,
		},
	)
	if err != nil {
		return ""
	}
	// What came last is what is waited for.
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return cmp.Or(
			b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time),
			cmp.Compare(a.GetName(), b.GetName()),
		)
	})
	for _, item := range list.Items {
		var pod corev1.Pod
		if runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pod) != nil ||
			pod.DeletionTimestamp != nil {
			continue
		}
		if reason := held(&pod); reason != "" {
			return fmt.Sprintf("; %s %s", pod.Name, reason)
		}
	}
	return ""
}

// held says what holds a pod up.
func held(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
			return "has no node: " + oneLine(c.Message)
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch w, t := s.State.Waiting, s.LastTerminationState.Terminated; {
		case w == nil || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" || w.Reason == "":
		case t != nil:
			return fmt.Sprintf("has container %s in %s, it ended with %d", s.Name, w.Reason, t.ExitCode)
		default:
			return oneLine(
				strings.TrimSuffix(fmt.Sprintf("has container %s in %s: %s", s.Name, w.Reason, w.Message), ": "),
			)
		}
	}
	return ""
}

// longest is how much of a reason is told.
const longest = 300

// oneLine makes a message fit into a report.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return strings.TrimSuffix(text, ".")
}
