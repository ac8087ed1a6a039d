package pod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Proves S23.
//
//style:long a table of facts, with the status of each
func TestStatusOfAPod(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts)
		want   string // phase, state of m, readiness of the pod
	}{
		{"new", func(f *Facts) { f.Sandboxes = nil }, "Pending waiting ContainerCreating False"},
		{"runs", func(f *Facts) { f.Containers = []Container{attemptOf("m", 0, Running, 0, 0)} },
			"Running running True"},
		{"not ready", func(f *Facts) {
			f.Pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
			f.Containers = []Container{attemptOf("m", 0, Running, 0, 0)}
		}, "Running running False"},
		{"ready by probe", func(f *Facts) {
			f.Pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
			f.Containers, f.Probes["m0"] = []Container{attemptOf("m", 0, Running, 0, 0)},
				Probe{Started: true, Ready: true}
		}, "Running running True"},
		{"crash loop", func(f *Facts) {
			f.Containers = []Container{attemptOf("m", 1, Exited, 1, time.Second)}
			f.Backoff["m"] = Backoff{}.Next(testNow.Add(-2 * time.Second))
		}, "Running waiting CrashLoopBackOff False"},
		{"image pull failed", func(f *Facts) {
			f.Waits["m"] = Wait{Reason: "ErrImagePull", BackoffReason: "ImagePullBackOff", At: testNow,
				Until: testNow.Add(10 * time.Second)}
		}, "Pending waiting ErrImagePull False"},
		{"image pull waits", func(f *Facts) {
			f.Waits["m"] = Wait{Reason: "ErrImagePull", BackoffReason: "ImagePullBackOff",
				At: testNow.Add(-2 * time.Second), Until: testNow.Add(10 * time.Second)}
		}, "Pending waiting ImagePullBackOff False"},
		{"initializing", func(f *Facts) {
			f.Pod.Spec.InitContainers, f.Containers = []corev1.Container{testContainer("a")},
				[]Container{attemptOf("a", 0, Running, 0, 0)}
		}, "Pending waiting PodInitializing False"},
		{"succeeded", func(f *Facts) {
			f.Pod.Spec.RestartPolicy, f.Sandboxes[0].Ready = corev1.RestartPolicyNever, false
			f.Containers = []Container{attemptOf("m", 0, Exited, 0, 0)}
		}, "Succeeded terminated Completed False"},
		{"failed", func(f *Facts) {
			f.Pod.Spec.RestartPolicy, f.Sandboxes[0].Ready = corev1.RestartPolicyNever, false
			f.Containers = []Container{attemptOf("m", 0, Exited, 2, 0)}
		}, "Failed terminated Error False"},
		{"evicted", func(f *Facts) {
			f.Evicted, f.Sandboxes[0].Ready = &End{Phase: corev1.PodFailed, Reason: "Evicted", Message: "short"}, false
			f.Containers = []Container{attemptOf("m", 0, Exited, 137, 0)}
		}, "Failed terminated Error False"},
		{"stopped to be made anew", func(f *Facts) {
			f.Pod.Spec.RestartPolicy, f.Pod.Spec.Containers[0].Image = corev1.RestartPolicyNever, "m:2"
			f.Containers = []Container{attemptOf("m", 0, Exited, 137, 0)}
		}, "Running waiting ContainerCreating False"},
		{"changed after it had ended", func(f *Facts) {
			f.Pod.Spec.RestartPolicy, f.Pod.Spec.Containers[0].Image = corev1.RestartPolicyNever, "m:2"
			f.Containers, f.Sandboxes[0].Ready = []Container{attemptOf("m", 0, Exited, 0, 0)}, false
			f.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "m", ContainerID: "test://m0",
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		}, "Succeeded terminated Completed False"},
		{"readiness gate", func(f *Facts) {
			f.Pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x"}}
			f.Containers = []Container{attemptOf("m", 0, Running, 0, 0)}
		}, "Running running False"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Status(runningFacts(c.change))
			got := string(s.Phase)
			switch st := s.ContainerStatuses[0].State; {
			case st.Waiting != nil:
				got += " waiting " + st.Waiting.Reason
			case st.Running != nil:
				got += " running"
			case st.Terminated != nil:
				got += " terminated " + st.Terminated.Reason
			}
			for _, c := range s.Conditions {
				if c.Type == corev1.PodReady {
					got += " " + string(c.Status)
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A sidecar that has ended is not ready, also when the runtime no longer has it. An init container that has succeeded
// is ready.
func TestEndedSidecarsAreNotReady(t *testing.T) {
	for _, has := range []bool{true, false} {
		f := runningFacts(func(f *Facts) {
			always := corev1.ContainerRestartPolicyAlways
			sidecar := testContainer("s")
			sidecar.RestartPolicy = &always
			f.Pod.Spec.RestartPolicy, f.Sandboxes[0].Ready = corev1.RestartPolicyNever, false
			f.Pod.Spec.InitContainers = []corev1.Container{testContainer("i"), sidecar}
			f.Containers = []Container{attemptOf("m", 0, Exited, 0, 0), attemptOf("s", 0, Exited, 0, 0),
				attemptOf("i", 0, Exited, 0, 0)}
		})
		if f.Pod.Status = Status(f); !has {
			f.Containers = nil
		}
		s := Status(f)
		if s.Phase != corev1.PodSucceeded || !s.InitContainerStatuses[0].Ready || s.InitContainerStatuses[1].Ready {
			t.Errorf("the runtime has the containers: %v: %s, %+v", has, s.Phase, s.InitContainerStatuses)
		}
	}
}

func TestConditionKeepsItsTransitionTimeWithoutAStatusChange(t *testing.T) {
	f := runningFacts(func(f *Facts) { f.Containers = []Container{attemptOf("m", 0, Running, 0, 0)} })
	f.Pod.Status = Status(f)
	f.Now = testNow.Add(time.Hour)
	if again := Status(f); !equality.Semantic.DeepEqual(again, f.Pod.Status) {
		t.Errorf("status changed by itself:\n%v\n%v", f.Pod.Status, again)
	}
	f.Pod.Status.Conditions = append(f.Pod.Status.Conditions,
		corev1.PodCondition{Type: "example.org/mine", Status: corev1.ConditionTrue})
	found := false
	for _, c := range Status(f).Conditions {
		found = found || c.Type == "example.org/mine"
	}
	if !found {
		t.Error("another's condition was dropped")
	}
}

// The podFailurePolicy of a Job uses this condition to distinguish a node's shortage from the pod's own failure.
func TestAnEvictedPodHasTheDisruptionCondition(t *testing.T) {
	before := corev1.PodCondition{
		Type:   corev1.DisruptionTarget,
		Status: corev1.ConditionTrue,
		Reason: "EvictionByEvictionAPI",
	}
	for name, c := range map[string]struct {
		end    *End
		before []corev1.PodCondition
		want   string
	}{
		"it runs": {nil, nil, ""},
		"the machine was short": {&End{Phase: corev1.PodFailed, Reason: "Evicted", Message: "short",
			IsNodePressure: true}, nil, "TerminationByKubelet short"},
		"somebody else was about to": {&End{Phase: corev1.PodFailed, Reason: "Evicted", Message: "short",
			IsNodePressure: true}, []corev1.PodCondition{before}, "TerminationByKubelet short"},
		"it took more than it may": {&End{Phase: corev1.PodFailed, Reason: "Evicted",
			Message: "too much"}, nil, ""},
		"it runs, and somebody is about to end it": {nil, []corev1.PodCondition{before}, "EvictionByEvictionAPI "},
	} {
		f := runningFacts(func(f *Facts) {
			f.Containers, f.Evicted, f.Pod.Status.Conditions = []Container{attemptOf("m", 0, Running, 0, 0)}, c.end,
				c.before
		})
		got := ""
		for _, condition := range Status(f).Conditions {
			if condition.Type == corev1.DisruptionTarget {
				got += condition.Reason + " " + condition.Message
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestQualityOfService(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	p := func(requests, limits corev1.ResourceList) *corev1.Pod {
		return &corev1.Pod{
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{
					{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}},
				},
			},
		}
	}
	for want, current := range map[corev1.PodQOSClass]*corev1.Pod{
		corev1.PodQOSBestEffort: p(nil, nil),
		corev1.PodQOSGuaranteed: p(list("1", "1Gi"), list("1", "1Gi")),
		corev1.PodQOSBurstable:  p(list("1", "1Gi"), list("2", "1Gi")),
	} {
		if got := QOS(current); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := OOMScoreAdj(p(list("1", "1Gi"), nil), &p(list("1", "1Gi"), nil).Spec.Containers[0], 4<<30); got != 750 {
		t.Errorf("a quarter of the memory gives %d", got)
	}
}
