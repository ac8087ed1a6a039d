package kinds

import (
	corev1 "k8s.io/api/core/v1"
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
