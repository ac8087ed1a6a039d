package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxPlainAllocations is the maximum number of allocations for a pod without warnings: the list of its containers, the
// paths of the spec and of a container, and the index of ports. Each create of a pod pays for them.
const maxPlainAllocations = 7

func TestPodsWithoutWarningsCostFewAllocations(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if got := Warnings(&pod.ObjectMeta, &pod.Spec, nil); len(got) > 0 {
		t.Fatalf("the pod has the warnings %q", got)
	}
	got := testing.AllocsPerRun(100, func() { Warnings(&pod.ObjectMeta, &pod.Spec, nil) })
	if got > maxPlainAllocations {
		t.Errorf("%.0f allocations, want at most %d", got, maxPlainAllocations)
	}
	pod.Annotations = map[string]string{"security.alpha.kubernetes.io/sysctls": "a"}
	want := `metadata.annotations[security.alpha.kubernetes.io/sysctls]: ` + oldAnnotations[1].text
	if got := Warnings(&pod.ObjectMeta, &pod.Spec, nil); len(got) != 1 || got[0] != want {
		t.Errorf("warnings %q, want %q", got, want)
	}
}
