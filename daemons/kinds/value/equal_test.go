package value

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// comparedPod returns a pod with values of all types that objects have.
func comparedPod() *corev1.Pod {
	seconds, yes := int64(30), true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              "p",
			Labels:            map[string]string{"app": "a"},
			CreationTimestamp: metav1.NewTime(time.Unix(1000, 0)),
			OwnerReferences:   []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: &yes}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "m", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:a":{}}`)}},
			},
		},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &seconds,
			Containers: []corev1.Container{{Name: "c", Image: "i",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
				LivenessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web")}},
				}}},
		},
	}
}

func TestSameAgreesWithSemanticEquality(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"nothing":          func(*corev1.Pod) {},
		"an empty map":     func(p *corev1.Pod) { p.Annotations = map[string]string{} },
		"an empty list":    func(p *corev1.Pod) { p.Finalizers = []string{} },
		"a label's value":  func(p *corev1.Pod) { p.Labels["app"] = "b" },
		"a label's key":    func(p *corev1.Pod) { p.Labels = map[string]string{"other": "a"} },
		"another zone":     func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0).UTC()) },
		"a time":           func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(1001, 0)) },
		"a pointer's sake": func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = nil },
		"a pointer's text": func(p *corev1.Pod) { *p.Spec.TerminationGracePeriodSeconds = 31 },
		"a flag":           func(p *corev1.Pod) { *p.OwnerReferences[0].Controller = false },
		"who owns fields":  func(p *corev1.Pod) { p.ManagedFields[0].FieldsV1.Raw = []byte(`{"f:b":{}}`) },
		"a quantity as it is written": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1000m")
		},
		"a quantity": func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2") },
		"a port":     func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe.HTTPGet.Port = intstr.FromInt32(1) },
		"a length":   func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{}) },
	} {
		p := comparedPod()
		change(p)
		if want := equality.Semantic.DeepEqual(comparedPod(), p); Same(comparedPod(), p) != want ||
			Same(p, comparedPod()) != want {
			t.Errorf("%s: not %v", name, want)
		}
		if want := equality.Semantic.DeepEqual(comparedPod().Spec, p.Spec); Same(comparedPod().Spec, p.Spec) != want {
			t.Errorf("%s, by value: not %v", name, want)
		}
	}
	raw := func(text string) any { return &runtime.RawExtension{Raw: []byte(text)} }
	if !Same(raw("{}"), raw("{}")) || Same(raw("{}"), raw("[]")) || Same(raw("{}"), nil) || !Same(nil, nil) {
		t.Error("raw objects")
	}
}

func BenchmarkSame(b *testing.B) {
	p, q := comparedPod(), comparedPod()
	b.ReportAllocs()
	for b.Loop() {
		Same(p, q)
	}
}

func BenchmarkSemantic(b *testing.B) {
	p, q := comparedPod(), comparedPod()
	b.ReportAllocs()
	for b.Loop() {
		equality.Semantic.DeepEqual(p, q)
	}
}
