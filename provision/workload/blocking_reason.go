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

// maxPods is how many pods are examined for a reason. One is reported.
const maxPods = 50

// blockingReason returns what blocks a pod of an unhealthy object: it cannot be scheduled, or one of its containers
// does not start. It returns "" if it finds no reason.
func (l *Live) blockingReason(ctx context.Context, live *unstructured.Unstructured) string {
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
			Limit:         maxPods,
		},
	)
	if err != nil {
		return ""
	}
	// Newest pods first, because the rollout waits for them.
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return cmp.Or(b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time),
			cmp.Compare(a.GetName(), b.GetName()))
	})
	for _, item := range list.Items {
		var pod corev1.Pod
		if runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pod) != nil ||
			pod.DeletionTimestamp != nil {
			continue
		}
		if reason := podProblem(&pod); reason != "" {
			return fmt.Sprintf("; %s %s", pod.Name, reason)
		}
	}
	return ""
}

// podProblem returns what blocks a pod.
func podProblem(pod *corev1.Pod) string {
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
			return oneLine(strings.TrimSuffix(fmt.Sprintf("has container %s in %s: %s", s.Name, w.Reason, w.Message),
				": "))
		}
	}
	return ""
}

// maxReasonBytes is the maximum number of bytes of a reason.
const maxReasonBytes = 300

// oneLine shortens a message to one line.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxReasonBytes {
		text = strings.ToValidUTF8(text[:maxReasonBytes], "") + "…"
	}
	return strings.TrimSuffix(text, ".")
}
