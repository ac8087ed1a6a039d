package plugin

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// What a pod holds of its node until a resize is done is not given to others, and what it cannot have is not kept for it.
func TestPodsThatAreResizedTakeTheLargerSizeS15(t *testing.T) {
	cpu := func(s string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse(s)}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: cpu("1")}}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: cpu("1"), Resources: &corev1.ResourceRequirements{Requests: cpu("3")}}}
	if got := NewPod(pod).Requests.MilliCPU; got != 3000 {
		t.Errorf("while it is made smaller it takes %d", got)
	}
	smaller := pod.DeepCopy()
	smaller.Status.ContainerStatuses[0].Resources.Requests = cpu("1")
	if !Resized(pod, smaller) || Resized(pod, pod.DeepCopy()) {
		t.Error("the end of a resize is not seen, or seen where there is none")
	}
	smaller.Spec.Containers[0].Resources.Requests = cpu("90")
	smaller.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
	if got := NewPod(smaller).Requests.MilliCPU; got != 1000 {
		t.Errorf("with a resize that cannot be it takes %d", got)
	}
}
