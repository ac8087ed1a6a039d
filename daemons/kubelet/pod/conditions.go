package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions returns the pod's conditions. It computes the kubelet's own from s and keeps the others.
func conditions(f *Facts, s *corev1.PodStatus) []corev1.PodCondition {
	endReason := ""
	switch s.Phase {
	case corev1.PodSucceeded:
		endReason = "PodCompleted"
	case corev1.PodFailed:
		endReason = "PodFailed"
	}
	box := f.sandbox()
	own := []corev1.PodCondition{
		newCondition(corev1.PodReadyToStartContainers, box != nil && box.Ready && (len(box.IPs) > 0 || box.HostNetwork),
			"", ""),
		initializedCondition(f, s, endReason),
	}
	containers := readyCondition(f, s, endReason)
	ready := containers
	ready.Type = corev1.PodReady
	if ready.Status == corev1.ConditionTrue {
		if missing := unmetGates(f.Pod); len(missing) > 0 {
			ready.Status, ready.Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
			ready.Message = strings.Join(missing, ", ")
		}
	}
	own = append(own, ready, containers, newCondition(corev1.PodScheduled, true, "", ""))
	own = append(own, resizeConditions(f, endReason != "")...)
	pressed := f.Evicted != nil && f.Evicted.IsNodePressure
	if pressed {
		own = append(own, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: corev1.PodReasonTerminationByKubelet, Message: f.Evicted.Message})
	}
	now := metav1.NewTime(f.Now.Truncate(1e9))
	for i := range own {
		own[i].LastTransitionTime = now
		own[i].ObservedGeneration = f.Pod.Generation
		for _, before := range f.Pod.Status.Conditions {
			if before.Type == own[i].Type && before.Status == own[i].Status {
				own[i].LastTransitionTime = before.LastTransitionTime
			}
		}
	}
	for _, before := range f.Pod.Status.Conditions {
		if !isOwnedCondition(before.Type) && !(pressed && before.Type == corev1.DisruptionTarget) {
			own = append(own, before)
		}
	}
	return own
}

// retainedConditions returns the conditions of a rejected pod: PodScheduled and the conditions that other components
// own.
func retainedConditions(f *Facts) []corev1.PodCondition {
	var list []corev1.PodCondition
	for _, before := range f.Pod.Status.Conditions {
		if !isOwnedCondition(before.Type) || before.Type == corev1.PodScheduled {
			list = append(list, before)
		}
	}
	return list
}

func isOwnedCondition(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodReadyToStartContainers,
		corev1.PodInitialized,
		corev1.PodReady,
		corev1.ContainersReady,
		corev1.PodScheduled,
		corev1.PodResizePending,
		corev1.PodResizeInProgress:
		return true
	}
	return false
}

func newCondition(t corev1.PodConditionType, ok bool, reason, message string) corev1.PodCondition {
	if ok {
		return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue}
	}
	return corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

func initializedCondition(f *Facts, s *corev1.PodStatus, endReason string) corev1.PodCondition {
	if endReason == "PodCompleted" {
		return corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, Reason: endReason}
	}
	var incomplete []string
	if !IsInitialized(f) {
		for i, c := range s.InitContainerStatuses {
			done := c.Ready
			if IsSidecar(&f.Pod.Spec.InitContainers[i]) {
				done = c.Started != nil && *c.Started
			}
			if !done {
				incomplete = append(incomplete, c.Name)
			}
		}
	}
	return newCondition(corev1.PodInitialized, len(incomplete) == 0, "ContainersNotInitialized",
		fmt.Sprintf("containers with incomplete status: %v", incomplete))
}

func readyCondition(f *Facts, s *corev1.PodStatus, endReason string) corev1.PodCondition {
	if endReason != "" {
		return newCondition(corev1.ContainersReady, false, endReason, "")
	}
	var unready []string
	for i, c := range s.InitContainerStatuses {
		if IsSidecar(&f.Pod.Spec.InitContainers[i]) && !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	for _, c := range s.ContainerStatuses {
		if !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	return newCondition(corev1.ContainersReady, len(unready) == 0, "ContainersNotReady",
		fmt.Sprintf("containers with unready status: %v", unready))
}

// unmetGates returns a message for each readiness gate that is not satisfied.
func unmetGates(p *corev1.Pod) []string {
	var missing []string
	for _, g := range p.Spec.ReadinessGates {
		state := "the status of pod readiness gate %q is not \"True\", but False"
		ok, found := false, false
		for _, c := range p.Status.Conditions {
			if c.Type == g.ConditionType {
				found, ok = true, c.Status == corev1.ConditionTrue
			}
		}
		if !found {
			state = "corresponding condition of pod readiness gate %q does not exist."
		}
		if !ok {
			missing = append(missing, fmt.Sprintf(state, g.ConditionType))
		}
	}
	return missing
}
