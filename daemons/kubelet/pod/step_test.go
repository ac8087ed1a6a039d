package pod

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var testNow = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func testContainer(name string) corev1.Container {
	return corev1.Container{Name: name, Image: name + ":1"}
}

func testSidecar(name string) corev1.Container {
	c, always := testContainer(name), corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

// runningFacts returns the facts of a running pod with one container m and the ready sandbox b0. change modifies them.
func runningFacts(change func(*Facts)) *Facts {
	f := &Facts{
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "d", UID: "u"}, Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{testContainer("m")},
		}},
		Now: testNow, Prepared: true, AdmittedSandbox: "b0",
		Sandboxes: []Sandbox{{ID: "b0", Ready: true, IPs: []string{"10.0.0.1"}}},
		Probes:    map[string]Probe{}, Waits: map[string]Wait{}, Backoff: map[string]Backoff{}, RuntimeName: "test",
	}
	if change != nil {
		change(f)
	}
	return f
}

func ephemeralContainers(name string) []corev1.EphemeralContainer {
	return []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(testContainer(name))}}
}

func attemptOf(name string, attempt uint32, state State, code int32, ago time.Duration) Container {
	c := testContainer(name)
	return Container{
		ID:        fmt.Sprintf("%s%d", name, attempt),
		Name:      name,
		SandboxID: "b0",
		Attempt:   attempt,
		State:     state,
		ExitCode:  code,
		Started:   testNow.Add(-time.Hour),
		Finished:  testNow.Add(-ago),
		Hash:      Hash(&c),
	}
}

// Proves S23.
//
//style:long a table of facts, with the step after each
func TestNextStepOfAPod(t *testing.T) {
	deleted := metav1.NewTime(testNow)
	five, old := int64(5), metav1.NewTime(testNow.Add(-time.Minute))
	for _, c := range []struct {
		name   string
		change func(*Facts)
		want   string
	}{
		{"new", func(f *Facts) { f.Prepared, f.Sandboxes = false, nil }, "prepare"},
		{"prepared", func(f *Facts) { f.Sandboxes = nil }, "run sandbox"},
		{"sandbox is up", nil, "start m 0"},
		{"sandbox is up and policies may not hold", func(f *Facts) { f.AdmittedSandbox = "" }, "admit b0"},
		{"policies held for a sandbox that is lost", func(f *Facts) { f.AdmittedSandbox = "b-1" }, "admit b0"},
		{"no policies are about the machine's own network",
			func(f *Facts) { f.AdmittedSandbox, f.Sandboxes[0].HostNetwork = "", true }, "start m 0"},
		{"a container that runs needs no policies", func(f *Facts) {
			f.AdmittedSandbox, f.Containers = "", []Container{attemptOf("m", 0, Running, 0, 0)}
		}, "rest"},
		{"policies have to hold before it starts again", func(f *Facts) {
			f.AdmittedSandbox, f.Containers = "", []Container{attemptOf("m", 0, Exited, 1, time.Hour)}
		}, "admit b0"},
		{"runs", func(f *Facts) { f.Containers = []Container{attemptOf("m", 0, Running, 0, 0)} }, "rest"},
		{"somebody looks into it", func(f *Facts) {
			f.Containers, f.Pod.Spec.EphemeralContainers = []Container{attemptOf("m", 0, Running, 0, 0)},
				ephemeralContainers("e")
		}, "start e 0"},
		{"who looked into it has left", func(f *Facts) {
			f.Containers, f.Pod.Spec.EphemeralContainers = []Container{attemptOf("e", 0, Exited, 1, 0),
				attemptOf("m", 0, Running, 0, 0)}, ephemeralContainers("e")
		}, "rest"},
		{"who looks into it cannot start yet", func(f *Facts) {
			f.Containers, f.Pod.Spec.EphemeralContainers = []Container{attemptOf("m", 0, Running, 0, 0)},
				ephemeralContainers("e")
			f.Waits["e"] = Wait{Until: testNow.Add(7 * time.Second)}
		}, "rest 7s"},
		{"start failed lately", func(f *Facts) { f.Waits["m"] = Wait{Until: testNow.Add(7 * time.Second)} }, "rest 7s"},
		{"start failed long ago", func(f *Facts) { f.Waits["m"] = Wait{Until: testNow.Add(-time.Second)} },
			"start m 0"},
		{"volumes failed lately", func(f *Facts) {
			f.Prepared, f.Sandboxes = false, nil
			f.Waits[""] = Wait{Until: testNow.Add(time.Second)}
		}, "rest 1s"},
		{"created but not started", func(f *Facts) { f.Containers = []Container{attemptOf("m", 0, Created, 0, 0)} },
			"remove containers m0"},
		{"exited the first time", func(f *Facts) { f.Containers = []Container{attemptOf("m", 0, Exited, 1, 0)} },
			"start m 1 again"},
		{"exited the second time", func(f *Facts) {
			f.Containers = []Container{attemptOf("m", 1, Exited, 1, 3*time.Second),
				attemptOf("m", 0, Exited, 1, time.Minute)}
			f.Backoff["m"] = Backoff{}.Next(testNow.Add(-4 * time.Second))
		}, "rest 7s"},
		{"back-off is over", func(f *Facts) {
			f.Containers = []Container{attemptOf("m", 1, Exited, 1, 11*time.Second)}
			f.Backoff["m"] = Backoff{}.Next(testNow.Add(-12 * time.Second))
		}, "start m 2 again"},
		{"restart policy never", func(f *Facts) {
			f.Pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			f.Containers = []Container{attemptOf("m", 0, Exited, 1, 0)}
		}, "kill pod"},
		{"on failure, succeeded", func(f *Facts) {
			f.Pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			f.Containers = []Container{attemptOf("m", 0, Exited, 0, 0)}
		}, "kill pod"},
		{"on failure, failed", func(f *Facts) {
			f.Pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			f.Containers = []Container{attemptOf("m", 0, Exited, 3, 0)}
		}, "start m 1 again"},
		{"ended, sandbox stopped", func(f *Facts) {
			f.Pod.Spec.RestartPolicy, f.Sandboxes[0].Ready = corev1.RestartPolicyNever, false
			f.Containers = []Container{attemptOf("m", 0, Exited, 1, 0)}
		}, "release"},
		{"ended and released", func(f *Facts) {
			f.Pod.Spec.RestartPolicy, f.Sandboxes[0].Ready, f.Released = corev1.RestartPolicyNever, false, true
			f.Containers = []Container{attemptOf("m", 0, Exited, 1, 0)}
		}, "rest"},
		{"the API says that it is over", func(f *Facts) { f.Pod.Status.Phase, f.Sandboxes = corev1.PodSucceeded, nil },
			"release"},
		{"liveness failed", func(f *Facts) {
			f.Containers, f.Probes["m0"] = []Container{attemptOf("m", 0, Running, 0, 0)},
				Probe{Started: true, Failed: "liveness"}
		}, "kill m0"},
		{"image changed", func(f *Facts) {
			f.Containers, f.Pod.Spec.Containers[0].Image = []Container{attemptOf("m", 0, Running, 0, 0)}, "m:2"
		}, "kill m0"},
		{"sandbox died under containers", func(f *Facts) {
			f.Sandboxes[0].Ready, f.Containers = false, []Container{attemptOf("m", 0, Running, 0, 0)}
		}, "kill pod"},
		{"sandbox died", func(f *Facts) { f.Sandboxes[0].Ready = false }, "run sandbox 1"},
		{"sandbox died after the job was done", func(f *Facts) {
			f.Pod.Spec.RestartPolicy, f.Sandboxes[0].Ready, f.Released = corev1.RestartPolicyOnFailure, false, true
			f.Containers = []Container{attemptOf("m", 0, Exited, 0, 0)}
		}, "rest"},
		{"init first", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testContainer("a"),
				testContainer("b")}
		}, "start a 0"},
		{"init runs", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testContainer("a"), testContainer("b")}
			f.Containers = []Container{attemptOf("a", 0, Running, 0, 0)}
		}, "rest"},
		{"one init is done", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testContainer("a"), testContainer("b")}
			f.Containers = []Container{attemptOf("a", 0, Exited, 0, 0)}
		}, "start b 0"},
		{"init failed", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testContainer("a")}
			f.Containers = []Container{attemptOf("a", 0, Exited, 1, 0)}
		}, "start a 1 again"},
		{"init failed for good", func(f *Facts) {
			f.Pod.Spec.RestartPolicy, f.Pod.Spec.InitContainers = corev1.RestartPolicyNever,
				[]corev1.Container{testContainer("a")}
			f.Containers = []Container{attemptOf("a", 0, Exited, 1, 0)}
		}, "kill pod"},
		{"init is done", func(f *Facts) {
			f.Pod.Spec.InitContainers, f.Containers = []corev1.Container{testContainer("a")},
				[]Container{attemptOf("a", 0, Exited, 0, 0)}
		}, "start m 0"},
		{"init was collected while main runs", func(f *Facts) {
			f.Pod.Spec.InitContainers, f.Containers = []corev1.Container{testContainer("a")},
				[]Container{attemptOf("m", 0, Running, 0, 0)}
		}, "rest"},
		{"init again in a new sandbox", func(f *Facts) {
			f.Pod.Spec.InitContainers, f.Sandboxes = []corev1.Container{testContainer("a")},
				[]Sandbox{{ID: "b1", Ready: true, IPs: []string{"x"}}}
			f.Containers, f.AdmittedSandbox = []Container{attemptOf("a", 0, Exited, 0, 0)}, "b1"
		}, "start a 1"},
		{"sidecar first", func(f *Facts) { f.Pod.Spec.InitContainers = []corev1.Container{testSidecar("s")} },
			"start s 0"},
		{"sidecar starts up", func(f *Facts) {
			s := testSidecar("s")
			s.StartupProbe = &corev1.Probe{}
			f.Pod.Spec.InitContainers, f.Containers = []corev1.Container{s},
				[]Container{attemptOf("s", 0, Running, 0, 0)}
		}, "rest"},
		{"sidecar is up", func(f *Facts) {
			f.Pod.Spec.InitContainers, f.Containers = []corev1.Container{testSidecar("s")},
				[]Container{attemptOf("s", 0, Running, 0, 0)}
		}, "start m 0"},
		{"sidecar of a running pod died", func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{testSidecar("s")}
			f.Containers = []Container{attemptOf("m", 0, Running, 0, 0), attemptOf("s", 0, Exited, 0, 0)}
		}, "start s 1 again"},
		{"job is done, its sidecar runs", func(f *Facts) {
			f.Pod.Spec.RestartPolicy, f.Pod.Spec.InitContainers = corev1.RestartPolicyNever,
				[]corev1.Container{testSidecar("s")}
			f.Containers = []Container{attemptOf("m", 0, Exited, 0, 0), attemptOf("s", 0, Running, 0, 0)}
		}, "kill pod"},
		{"deleted while running", func(f *Facts) {
			f.Pod.DeletionTimestamp, f.Pod.DeletionGracePeriodSeconds = &deleted, &five
			f.Containers = []Container{attemptOf("m", 0, Running, 0, 0)}
		}, "kill pod 5s"},
		{"deleted and stopped", func(f *Facts) { f.Pod.DeletionTimestamp, f.Sandboxes[0].Ready = &deleted, false },
			"remove"},
		{"deleted before it began",
			func(f *Facts) { f.Pod.DeletionTimestamp, f.Sandboxes, f.Prepared = &deleted, nil, false }, "remove"},
		{"removed from its source",
			func(f *Facts) { f.Removed, f.Containers = true, []Container{attemptOf("m", 0, Running, 0, 0)} },
			"kill pod"},
		{"deadline is over", func(f *Facts) {
			f.Pod.Spec.ActiveDeadlineSeconds, f.Pod.Status.StartTime = &five, &old
			f.Containers = []Container{attemptOf("m", 0, Running, 0, 0)}
		}, "kill pod"},
		{"evicted", func(f *Facts) {
			f.Evicted, f.Containers = &End{Phase: corev1.PodFailed, Reason: "Evicted"},
				[]Container{attemptOf("m", 0, Running, 0, 0)}
		}, "kill pod 1s"},
		{"old attempts go", func(f *Facts) {
			f.Containers = []Container{attemptOf("m", 2, Running, 0, 0), attemptOf("m", 1, Exited, 1, time.Minute),
				attemptOf("m", 0, Exited, 1, time.Hour)}
		}, "remove containers m0"},
		{"old sandboxes go", func(f *Facts) {
			f.Sandboxes = append([]Sandbox{{ID: "b1", Ready: true, IPs: []string{"x"}}}, Sandbox{ID: "bx"})
			m := attemptOf("m", 0, Running, 0, 0)
			m.SandboxID = "b1"
			f.Containers = []Container{m}
		}, "remove sandboxes bx"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := runningFacts(c.change)
			if got := describeStep(f, Next(f)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func describeStep(f *Facts, s Step) string {
	out := string(s.Kind)
	switch s.Kind {
	case Start:
		out = fmt.Sprintf("start %s %d", s.Container, s.Attempt)
		if s.Restart {
			out += " again"
		}
	case Admit:
		out += " " + s.SandboxID
	case Kill:
		out = "kill " + s.ID
	case KillPod:
		if s.Grace != 30*time.Second {
			out += " " + s.Grace.String()
		}
	case RunSandbox:
		if s.Attempt > 0 {
			out += fmt.Sprintf(" %d", s.Attempt)
		}
	case RemoveContainers, RemoveSandboxes:
		for _, id := range s.IDs {
			out += " " + id
		}
	case Rest:
		if !s.At.IsZero() {
			out += " " + s.At.Sub(f.Now).String()
		}
	}
	return out
}

func TestBackoffDoublesUpToFiveMinutesAndResets(t *testing.T) {
	var b Backoff
	at := testNow
	var delays []time.Duration
	for range 7 {
		b = b.Next(at)
		delays = append(delays, b.Delay)
		at = at.Add(b.Delay)
	}
	if fmt.Sprint(delays) != "[10s 20s 40s 1m20s 2m40s 5m0s 5m0s]" {
		t.Errorf("delays are %v", delays)
	}
	if b = b.Next(at.Add(time.Hour)); b.Delay != FirstDelay {
		t.Errorf("after an hour of peace the delay is %v", b.Delay)
	}
}

func TestEveryPodComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := runningFacts(nil)
		f.Pod.Spec.RestartPolicy = rapid.SampledFrom([]corev1.RestartPolicy{"Always", "OnFailure", "Never"}).
			Draw(t, "policy")
		if rapid.Bool().Draw(t, "init") {
			f.Pod.Spec.InitContainers = append(f.Pod.Spec.InitContainers, testContainer("a"))
		}
		if rapid.Bool().Draw(t, "sidecar") {
			f.Pod.Spec.InitContainers = append(f.Pod.Spec.InitContainers, testSidecar("s"))
		}
		f.Prepared, f.Sandboxes[0].Ready = rapid.Bool().Draw(t, "prepared"), rapid.Bool().Draw(t, "ready")
		for _, name := range []string{"a", "s", "m"} {
			if findContainer(f.Pod, name) != nil && rapid.Bool().Draw(t, name) {
				f.Containers = append(f.Containers, attemptOf(name, 0,
					rapid.SampledFrom([]State{Created, Running, Exited, Unknown}).Draw(t, "state"),
					rapid.Int32Range(0, 1).Draw(t, "code"), time.Minute))
			}
		}
		if rapid.Bool().Draw(t, "deleted") {
			at := metav1.NewTime(testNow)
			f.Pod.DeletionTimestamp = &at
		}
		serial := 1
		for range 40 {
			step := Next(f)
			Status(f)
			if carryOut(t, f, step, &serial) {
				return
			}
		}
		t.Fatalf("still at %+v after 40 steps", Next(f))
	})
}

// carryOut changes the facts as a step does. It reports whether the pod is at rest. serial numbers the sandboxes.
func carryOut(t *rapid.T, f *Facts, step Step, serial *int) (atRest bool) {
	switch step.Kind {
	case Rest:
		if step.At.IsZero() || step.At.After(f.Now) {
			return true
		}
	case Remove:
		return true
	case Prepare:
		f.Prepared = true
	case Release:
		f.Released = true
	case RunSandbox:
		f.Sandboxes = append(
			[]Sandbox{{ID: fmt.Sprintf("b%d", *serial), Attempt: step.Attempt, Ready: true, IPs: []string{"x"}}},
			f.Sandboxes...)
		*serial++
	case Admit:
		f.AdmittedSandbox = step.SandboxID
	case Start:
		if f.AdmittedSandbox != step.SandboxID {
			t.Fatalf("%s starts in %s, whose policies may not hold", step.Container, step.SandboxID)
		}
		state, code := Running, int32(0)
		if step.Container == "a" {
			state = Exited
		}
		c := attemptOf(step.Container, step.Attempt, state, code, 0)
		c.SandboxID = f.Sandboxes[0].ID
		f.Containers = append([]Container{c}, f.Containers...)
	case Kill, KillPod:
		for i := range f.Containers {
			if f.Containers[i].State == Running && (step.Kind == KillPod || f.Containers[i].ID == step.ID) {
				f.Containers[i].State, f.Containers[i].ExitCode = Exited, 137
			}
		}
		for i := range f.Sandboxes {
			f.Sandboxes[i].Ready = f.Sandboxes[i].Ready && step.Kind != KillPod
		}
	case RemoveContainers, RemoveSandboxes:
		removed := map[string]bool{}
		for _, id := range step.IDs {
			removed[id] = true
		}
		var cs []Container
		for _, c := range f.Containers {
			if !removed[c.ID] {
				cs = append(cs, c)
			}
		}
		var bs []Sandbox
		for _, b := range f.Sandboxes {
			if !removed[b.ID] {
				bs = append(bs, b)
			}
		}
		f.Containers, f.Sandboxes = cs, bs
	}
	return false
}

// Proves S23.
func TestContainersWaitForInitContainers(t *testing.T) {
	p := &corev1.Pod{
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "first"}},
			Containers:     []corev1.Container{{Name: "main"}},
		},
	}
	f := &Facts{Pod: p, Now: time.Unix(1000, 0)}
	for _, boxes := range [][]Sandbox{nil, {{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}}} {
		f.Sandboxes = boxes
		s := Status(f)
		for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
			if c.State.Waiting == nil || c.State.Waiting.Reason != "PodInitializing" {
				t.Errorf("%s: %+v", c.Name, c.State)
			}
		}
		for kind, want := range map[corev1.PodConditionType][2]string{
			corev1.PodInitialized:  {"ContainersNotInitialized", "containers with incomplete status: [first]"},
			corev1.PodReady:        {"ContainersNotReady", "containers with unready status: [main]"},
			corev1.ContainersReady: {"ContainersNotReady", "containers with unready status: [main]"},
		} {
			if c := conditionOf(s, kind); c == nil || c.Status != corev1.ConditionFalse || c.Reason != want[0] ||
				c.Message != want[1] {
				t.Errorf("%s: %+v", kind, c)
			}
		}
	}
}
