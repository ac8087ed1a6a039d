package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/podspec"
)

func PodTemplates() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("PodTemplate"),
		Resource: "podtemplates", Singular: "podtemplate", Namespaced: true, HasGeneration: true, CreateOnUpdate: true,
		New: kind.New[corev1.PodTemplate](), NewList: kind.New[corev1.PodTemplateList](),
		Default: kind.Adapt(func(t *corev1.PodTemplate) { podspec.DefaultTemplate(&t.Template) }),
		Warnings: podspec.TemplateWarnings(func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template },
			"template"),
		Validate: kind.AdaptValidate(func(t *corev1.PodTemplate) field.ErrorList {
			return podspec.ValidateTemplate(&t.Template, field.NewPath("template"))
		}),
		Columns: kind.NewColumns("Containers", "Images", "Pod Labels"),
		Row: kind.AdaptRow(func(t *corev1.PodTemplate) []any {
			return []any{
				cell.ContainerNames(&t.Template.Spec),
				cell.ContainerImages(&t.Template.Spec),
				cell.LabelText(t.Template.Labels),
			}
		}),
	}
}
