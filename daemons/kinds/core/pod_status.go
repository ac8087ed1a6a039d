package core

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"clusterctl/daemons/kinds/podspec"
)

// podSummary holds what kubectl's columns show about a pod's containers.
type podSummary struct {
	ready, total, restarts int
	lastRestart            time.Time
	reason                 string
}

// summarize follows kubectl's rules: the first init container that has not finished determines the reason, then the
// container in the worst state.
func summarize(pod *corev1.Pod) podSummary {
	s := podSummary{total: len(pod.Spec.Containers), reason: string(pod.Status.Phase)}
	if pod.Status.Reason != "" {
		s.reason = pod.Status.Reason
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	sidecars := map[string]bool{}
	for _, c := range pod.Spec.InitContainers {
		if podspec.IsSidecar(&c) {
			sidecars[c.Name] = true
			s.total++
		}
	}
	initializing := s.addInitContainers(pod, sidecars)
	if !initializing || hasPodCondition(pod, corev1.PodInitialized) {
		s.addContainers(pod, sidecars, initializing)
	}
	if pod.DeletionTimestamp != nil {
		finished := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
		if pod.Status.Reason == "NodeLost" {
			s.reason = "Unknown"
		} else if !finished {
			s.reason = "Terminating"
		}
	}
	return s
}

// addInitContainers reports whether an init container has not finished yet.
func (s *podSummary) addInitContainers(pod *corev1.Pod, sidecars map[string]bool) bool {
	initializing := false
	for i, c := range pod.Status.InitContainerStatuses {
		s.count(c)
		if initializing {
			continue
		}
		switch {
		case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case c.State.Terminated != nil:
			s.reason = "Init:" + terminationReason(c.State.Terminated)
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
			s.reason = "Init:" + c.State.Waiting.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		initializing = true
	}
	return initializing
}

func (s *podSummary) addContainers(pod *corev1.Pod, sidecars map[string]bool, initializing bool) {
	restarts, last := 0, time.Time{}
	if !initializing || len(sidecars) > 0 {
		for _, c := range pod.Status.InitContainerStatuses {
			if sidecars[c.Name] {
				restarts += int(c.RestartCount)
				if t := lastFinished(c); t.After(last) {
					last = t
				}
			}
		}
	}
	s.restarts, s.lastRestart = restarts, last
	running := false
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := pod.Status.ContainerStatuses[i]
		s.count(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.reason = terminationReason(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason == "Completed" && running {
		s.reason = "NotReady"
		if hasPodCondition(pod, corev1.PodReady) {
			s.reason = "Running"
		}
	}
}

func (s *podSummary) count(c corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := lastFinished(c); t.After(s.lastRestart) {
		s.lastRestart = t
	}
}

func lastFinished(c corev1.ContainerStatus) time.Time {
	if t := c.LastTerminationState.Terminated; t != nil {
		return t.FinishedAt.Time
	}
	return time.Time{}
}

func terminationReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

func hasPodCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// QOSClass returns Guaranteed if every container has limits for cpu and memory that equal its requests. It returns
// BestEffort if none has either, and else Burstable.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass {
	requirements := []corev1.ResourceRequirements{}
	if pod.Spec.Resources != nil && (len(pod.Spec.Resources.Requests) > 0 || len(pod.Spec.Resources.Limits) > 0) {
		requirements = append(requirements, *pod.Spec.Resources)
	} else {
		for _, c := range append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
			requirements = append(requirements, c.Resources)
		}
	}
	any, guaranteed := false, true
	for _, r := range requirements {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := quantity(r.Requests, name), quantity(r.Limits, name)
			if !request.IsZero() || !limit.IsZero() {
				any = true
			}
			if limit.IsZero() || (!request.IsZero() && request.Cmp(limit) != 0) {
				guaranteed = false
			}
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) resource.Quantity {
	return list[name]
}
