package server

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A log request for a container that has not started returns the reason why it waits, for all types of containers.
// Proves S08.
func TestLogRequestForAWaitingContainerReturnsTheReason(t *testing.T) {
	waits := func(name, reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{
			{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}},
		}
	}
	p := &corev1.Pod{Status: corev1.PodStatus{
		InitContainerStatuses: waits("init", "CrashLoopBackOff"),
		ContainerStatuses:     waits("web", "PodInitializing"),
		EphemeralContainerStatuses: append(waits("debug", "CreateContainerConfigError"),
			waits("pull", "ImagePullBackOff")...),
	}}
	for name, want := range map[string]string{
		"init": "CrashLoopBackOff", "web": "PodInitializing", "debug": "CreateContainerConfigError",
		"pull": "trying and failing to pull image", "new": "ContainerCreating",
	} {
		if got := waitingReason(p, name); got != want {
			t.Errorf("%s waits for %q, want %q", name, got, want)
		}
	}
}
