package kinds

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// bindings declares the old way to bind a pod, in which the path does not name the pod.
func bindings() *Kind {
	return &Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("Binding"),
		Resource: "bindings", Singular: "binding", Namespaced: true, Virtual: true, Verbs: createOnlyVerbs,
		New: newOf[corev1.Binding](), NewList: newOf[metav1.List](),
		Validate: adaptValidate(ValidateBinding),
	}
}

// ValidateBinding also validates the binding subresource of pods.
func ValidateBinding(b *corev1.Binding) field.ErrorList {
	path := field.NewPath("target")
	var errs field.ErrorList
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, notSupported(path.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	return errs
}
