package pod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The conditions list the containers that are not ready. An init container is ready when it has completed, and a
// sidecar when it has started.
func TestConditionsNameTheContainersThatAreNotReady(t *testing.T) {
	waits := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}}
	for _, row := range []struct {
		name                 string
		change               func(*Facts)
		ready                []string // containers that are reported ready
		initialized, waiting string   // messages of the conditions Initialized and ContainersReady
	}{
		{"an init container runs", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testContainer("a"), testContainer("b")}
			f.Containers = []Container{attemptOf("a", 0, Running, 0, 0)}
		}, nil, "containers with incomplete status: [a b]", "containers with unready status: [m]"},
		{"the second of them runs", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testContainer("a"), testContainer("b")}
			f.Containers = []Container{attemptOf("b", 0, Running, 0, 0), attemptOf("a", 0, Exited, 0, time.Minute)}
		}, []string{"a"}, "containers with incomplete status: [b]", "containers with unready status: [m]"},
		{"an init container has failed", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testContainer("a")}
			f.Containers = []Container{attemptOf("a", 0, Exited, 1, time.Second)}
		}, nil, "containers with incomplete status: [a]", "containers with unready status: [m]"},
		{"a sidecar has started and is not ready", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testSidecar("s"), testContainer("a")}
			f.Pod.Spec.InitContainers[0].ReadinessProbe = waits
			f.Containers = []Container{attemptOf("a", 0, Running, 0, 0), attemptOf("s", 0, Running, 0, 0)}
		}, nil, "containers with incomplete status: [a]", "containers with unready status: [s m]"},
		{"a sidecar has not started", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testSidecar("s"), testContainer("a")}
			f.Pod.Spec.InitContainers[0].StartupProbe = waits
			f.Containers = []Container{attemptOf("s", 0, Running, 0, 0)}
		}, nil, "containers with incomplete status: [s a]", "containers with unready status: [s m]"},
		{"a sidecar waits for its next start", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testSidecar("s")}
			f.Containers = []Container{attemptOf("m", 0, Running, 0, 0), attemptOf("s", 1, Exited, 1, time.Second)}
			f.Backoff["s"] = Backoff{Delay: time.Minute}
		}, []string{"m"}, "", "containers with unready status: [s]"},
		{"all is well", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testSidecar("s"), testContainer("a")}
			f.Containers = []Container{attemptOf("m", 0, Running, 0, 0), attemptOf("a", 0, Exited, 0, time.Minute),
				attemptOf("s", 0, Running, 0, 0)}
		}, []string{"s", "a", "m"}, "", ""},
	} {
		s := Status(runningFacts(row.change))
		ready := map[string]bool{}
		for _, name := range row.ready {
			ready[name] = true
		}
		for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
			for _, c := range list {
				if c.Ready != ready[c.Name] {
					t.Errorf("%s: container %s is reported ready: %t", row.name, c.Name, c.Ready)
				}
			}
		}
		if got := messageOf(s, corev1.PodInitialized); got != row.initialized {
			t.Errorf("%s: Initialized says %q, want %q", row.name, got, row.initialized)
		}
		if got := messageOf(s, corev1.ContainersReady); got != row.waiting {
			t.Errorf("%s: ContainersReady says %q, want %q", row.name, got, row.waiting)
		}
	}
}

func messageOf(s corev1.PodStatus, kind corev1.PodConditionType) string {
	if c := conditionOf(s, kind); c != nil {
		return c.Message
	}
	return "there is no such condition"
}
