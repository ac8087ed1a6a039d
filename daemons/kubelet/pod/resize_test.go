package pod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// equalResources returns resources with equal requests and limits.
func equalResources(cpu, memory string) corev1.ResourceRequirements {
	l := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory),
	}
	return corev1.ResourceRequirements{Requests: l, Limits: l}
}

func resizedFacts(run, want corev1.ResourceRequirements, policies ...corev1.ContainerResizePolicy) *Facts {
	p := &corev1.Pod{
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers:    []corev1.Container{{Name: "main", Resources: want, ResizePolicy: policies}},
		},
	}
	p.Generation = 2
	size := SizeOf(run)
	return &Facts{
		Pod: p, Now: time.Unix(1000, 0), Prepared: true, RuntimeName: "test", AdmittedSandbox: "s",
		Sandboxes: []Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}},
		Containers: []Container{
			{
				ID:        "c",
				Name:      "main",
				SandboxID: "s",
				State:     Running,
				Started:   time.Unix(900, 0),
				Hash:      Hash(&p.Spec.Containers[0]),
				Size:      &size,
			},
		},
	}
}

// Proves S23.
func TestContainersAreResizedByTheirPolicy(t *testing.T) {
	restart := func(name corev1.ResourceName) corev1.ContainerResizePolicy {
		return corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer}
	}
	for _, c := range []struct {
		name      string
		run, want corev1.ResourceRequirements
		policies  []corev1.ContainerResizePolicy
		step      Kind
	}{
		{"as it is", equalResources("1", "1Gi"), equalResources("1", "1Gi"), nil, Rest},
		{"more CPU", equalResources("1", "1Gi"), equalResources("2", "1Gi"), nil, ResizeContainer},
		{"less memory", equalResources("1", "1Gi"), equalResources("1", "512Mi"), nil, ResizeContainer},
		{"memory with a restart", equalResources("1", "1Gi"), equalResources("1", "2Gi"),
			[]corev1.ContainerResizePolicy{restart(corev1.ResourceMemory)}, Kill},
		{"CPU where memory needs a restart", equalResources("1", "1Gi"), equalResources("2", "1Gi"),
			[]corev1.ContainerResizePolicy{restart(corev1.ResourceMemory)}, ResizeContainer},
	} {
		f := resizedFacts(c.run, c.want, c.policies...)
		step := Next(f)
		if step.Kind != c.step {
			t.Errorf("%s: next is %+v, want %s", c.name, step, c.step)
		}
		s := Status(f)
		got := s.ContainerStatuses[0]
		if got.AllocatedResources.Cpu().Cmp(*c.want.Requests.Cpu()) != 0 || got.Resources == nil ||
			got.Resources.Limits.Memory().Cmp(*c.run.Limits.Memory()) != 0 ||
			got.Resources.Limits.Cpu().Cmp(*c.run.Limits.Cpu()) != 0 ||
			got.Resources.Requests.Cpu().Cmp(*c.run.Requests.Cpu()) != 0 {
			t.Errorf("%s: status says allocated %v, resources %v", c.name, got.AllocatedResources, got.Resources)
		}
		if on := conditionOf(s, corev1.PodResizeInProgress) != nil; on != (c.step != Rest) {
			t.Errorf("%s: PodResizeInProgress is %v", c.name, on)
		}
	}
	f := resizedFacts(equalResources("1", "1Gi"), equalResources("1", "2Gi"), restart(corev1.ResourceMemory))
	f.Containers[0].State, f.Containers[0].Finished = Exited, f.Now
	if step := Next(f); step.Kind != Start || step.Restart {
		t.Errorf("what was stopped to be resized: %+v", step)
	}
}

func TestPendingResizesAreReported(t *testing.T) {
	f := resizedFacts(equalResources("1", "1Gi"), equalResources("2", "1Gi"))
	f.Resize = Resize{
		Pending:   corev1.PodReasonDeferred,
		Message:   "no room",
		Error:     "busy",
		NotBefore: map[string]time.Time{"main": f.Now.Add(time.Minute)},
	}
	if step := Next(f); step.Kind != Rest || !step.At.Equal(f.Now.Add(time.Minute)) {
		t.Errorf("next is %+v", step)
	}
	s := Status(f)
	if c := conditionOf(s, corev1.PodResizePending); c == nil || c.Reason != "Deferred" || c.Message != "no room" ||
		c.ObservedGeneration != 2 {
		t.Errorf("pending: %+v", c)
	}
	if c := conditionOf(s, corev1.PodResizeInProgress); c == nil || c.Reason != "Error" || c.Message != "busy" {
		t.Errorf("in progress: %+v", c)
	}
	f.Pod.Status, f.Resize = s, Resize{}
	f.Containers[0].Size = nil // a runtime that does not report sizes
	if s := Status(f); conditionOf(s, corev1.PodResizePending) != nil ||
		conditionOf(s, corev1.PodResizeInProgress) != nil {
		t.Errorf("conditions stay: %+v", s.Conditions)
	}
}

func conditionOf(s corev1.PodStatus, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

func TestAllocatedResourcesAreInTheStatus(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
		Resources: equalResources("4", "1Gi")}}}}
	before := equalResources("1", "1Gi")
	p.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "main", AllocatedResources: before.Requests, Resources: &before},
	}
	given := ReportedAllocation(p)
	if got := WithAllocation(p, given).Spec.Containers[0].Resources; got.Requests.Cpu().Value() != 1 ||
		got.Limits.Cpu().Value() != 1 {
		t.Errorf("given %v", got)
	}
	if p.Spec.Containers[0].Resources.Requests.Cpu().Value() != 4 {
		t.Error("the API's pod was changed")
	}
	if WithAllocation(p, SpecAllocation(p)) != p {
		t.Error("a pod that was given what it wants is another")
	}
}

// Proves S25.
func TestPodLevelResourcesDecideTheQOSClass(t *testing.T) {
	whole := equalResources("1", "1Gi")
	p := &corev1.Pod{Spec: corev1.PodSpec{Resources: &whole, Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}}}
	if got := QOS(p); got != corev1.PodQOSGuaranteed {
		t.Errorf("class %s", got)
	}
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: whole.Requests}
	if got := QOS(p); got != corev1.PodQOSBurstable {
		t.Errorf("class %s", got)
	}
	if got := OOMScoreAdj(p, &p.Spec.Containers[0], 2<<30); got != 750 {
		t.Errorf("score %d: each container has half of what the pod requests", got)
	}
	always := corev1.ContainerRestartPolicyAlways
	p = &corev1.Pod{
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "side", RestartPolicy: &always}},
			Containers:     []corev1.Container{{Name: "main", Resources: whole}},
		},
	}
	p.Spec.Containers[0].Resources.Limits = nil
	if main, side := OOMScoreAdj(p, &p.Spec.Containers[0], 2<<30),
		OOMScoreAdj(p, &p.Spec.InitContainers[0], 2<<30); main != 500 ||
		side != 500 {
		t.Errorf("scores %d and %d: a sidecar is not killed before those that it serves", main, side)
	}
}
