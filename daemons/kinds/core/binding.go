package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
)

// Bindings declares the old way to bind a pod, in which the path does not name the pod.
func Bindings() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("Binding"),
		Resource: "bindings", Singular: "binding", Namespaced: true, Virtual: true, Verbs: kind.CreateOnlyVerbs,
		New: kind.New[corev1.Binding](), NewList: kind.New[metav1.List](),
		Validate: kind.AdaptValidate(ValidateBinding),
	}
}

// ValidateBinding also validates the binding subresource of pods.
func ValidateBinding(b *corev1.Binding) field.ErrorList {
	path := field.NewPath("target")
	var errs field.ErrorList
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, validate.NotSupported(path.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	return errs
}
