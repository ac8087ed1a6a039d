package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Until a resize is done, the larger amount counts. An infeasible amount does not.
// Proves S15.
func TestResizedPodsCountWithTheLargerSize(t *testing.T) {
	cpu := func(s string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse(s)}
	}
	shapes := NewShapes()
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: cpu("1")}}},
		},
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "main", AllocatedResources: cpu("1"), Resources: &corev1.ResourceRequirements{Requests: cpu("3")}},
	}
	before := NewPod(pod, shapes)
	if got := before.used.MilliCPU; got != 3000 {
		t.Errorf("while it is made smaller it takes %d", got)
	}
	smaller := pod.DeepCopy()
	smaller.Status.ContainerStatuses[0].Resources.Requests = cpu("1")
	if !NewPod(smaller, shapes).IsResized(before) || NewPod(pod.DeepCopy(), shapes).IsResized(before) {
		t.Error("the end of a resize is not seen, or seen where there is none")
	}
	smaller.Spec.Containers[0].Resources.Requests = cpu("90")
	smaller.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible},
	}
	if got := NewPod(smaller, shapes).used.MilliCPU; got != 1000 {
		t.Errorf("with a resize that cannot be it takes %d", got)
	}
}

// Pods of one template share a Shape. Pods with other requests do not.
func TestEqualPodsShareAShape(t *testing.T) {
	shapes := NewShapes()
	pod := func(change func(*corev1.Pod)) *Shape {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}}}}
		p.Labels = map[string]string{"app": "web"}
		change(p)
		return NewPod(p, shapes).Shape
	}
	same := func(p *corev1.Pod) {}
	first := pod(same)
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		equal  bool
	}{
		"the same":    {same, true},
		"name, node":  {func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "x", "n1" }, true},
		"environment": {func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}} }, true},
		"label":       {func(p *corev1.Pod) { p.Labels["app"] = "db" }, false},
		"namespace":   {func(p *corev1.Pod) { p.Namespace = "other" }, false},
		"image":       {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "b" }, false},
		"requests": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": quantity.MustParse("1")}
		}, false},
		"several devices": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"a/x": quantity.MustParse("1"),
				"a/y": quantity.MustParse("2")}
		}, false},
		"toleration": {func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "k"}} }, false},
		"claim": {func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		}, false},
	} {
		if got := pod(c.change); (got == first) != c.equal {
			t.Errorf("%s: equal: %v", name, got == first)
		}
	}
}

// matchLabelKeys are evaluated at creation. Later changes of the labels have no effect.
func TestMatchLabelKeysAreEvaluatedAtCreation(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Labels: map[string]string{"hash": "2", "tenant": "v"}},
	}
	in := func(key string, operator metav1.LabelSelectorOperator, value string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}}
	}
	term := corev1.PodAffinityTerm{
		TopologyKey:       "z",
		MatchLabelKeys:    []string{"hash"},
		MismatchLabelKeys: []string{"tenant"},
		LabelSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				in("hash", metav1.LabelSelectorOpIn, "1"),
				in("tenant", metav1.LabelSelectorOpNotIn, "t"),
			}},
	}
	for _, c := range []struct {
		hash, tenant string
		want         bool
	}{{"1", "v", true}, {"1", "t", false}, {"2", "v", false}} {
		if got := parseTerm(pod, &term).matches("d", map[string]string{"hash": c.hash, "tenant": c.tenant},
			nil); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	term.LabelSelector.MatchExpressions = nil // from an API server that does not merge the keys
	if a := parseTerm(pod, &term); !a.matches("d", map[string]string{"hash": "2", "tenant": "t"}, nil) ||
		a.matches("d", map[string]string{"hash": "1"}, nil) ||
		a.matches("d", map[string]string{"hash": "2", "tenant": "v"}, nil) {
		t.Error("the keys are not read where the selector lacks them")
	}
}
