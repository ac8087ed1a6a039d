package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validatePod(pod *corev1.Pod) field.ErrorList {
	return validatePodSpec(&pod.Spec, field.NewPath("spec"))
}
func validatePodTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	return validatePodSpec(&t.Spec, path.Child("spec"))
}
func validatePodUpdate(pod, old *corev1.Pod) field.ErrorList { return validatePod(pod) }
func validatePodSpec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if len(spec.Containers) == 0 {
		return field.ErrorList{field.Required(path.Child("containers"), "")}
	}
	return nil
}
func validateService(s *corev1.Service) field.ErrorList            { return nil }
func validateServiceUpdate(s, old *corev1.Service) field.ErrorList { return nil }
