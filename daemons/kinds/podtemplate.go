package kinds

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func podTemplates() *Kind {
	return &Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("PodTemplate"),
		Resource: "podtemplates", Singular: "podtemplate", Namespaced: true, HasGeneration: true, CreateOnUpdate: true,
		New: newOf[corev1.PodTemplate](), NewList: newOf[corev1.PodTemplateList](),
		Default: adapt(func(t *corev1.PodTemplate) { defaultPodTemplate(&t.Template) }),
		Warnings: templateWarnings(
			func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template },
			"template",
		),
		Validate: adaptValidate(func(t *corev1.PodTemplate) field.ErrorList {
			return validatePodTemplate(&t.Template, field.NewPath("template"))
		}),
		Columns: newColumns("Containers", "Images", "Pod Labels"),
		Row: adaptRow(func(t *corev1.PodTemplate) []any {
			return []any{
				containerNames(&t.Template.Spec),
				containerImages(&t.Template.Spec),
				labelText(t.Template.Labels),
			}
		}),
	}
}

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
