package workload

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
)

func ControllerRevisions() *kind.Kind {
	return &kind.Kind{
		GVK:      appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
		Resource: "controllerrevisions", Singular: "controllerrevision", Namespaced: true,
		New: kind.New[appsv1.ControllerRevision](), NewList: kind.New[appsv1.ControllerRevisionList](),
		Validate: kind.AdaptValidate(validateControllerRevision),
		ValidateUpdate: kind.AdaptValidateUpdate(func(r, old *appsv1.ControllerRevision) field.ErrorList {
			return append(validateControllerRevision(r),
				validate.Immutable(r.Data.Raw, old.Data.Raw, field.NewPath("data"))...)
		}),
		Columns: kind.NewColumns("Controller", "Revision:integer", "Age"),
		Row: kind.AdaptRow(func(r *appsv1.ControllerRevision) []any {
			owner := cell.NoneText
			if c := metav1.GetControllerOf(r); c != nil {
				owner = strings.ToLower(c.Kind) + "/" + c.Name
				if group, _, found := strings.Cut(c.APIVersion, "/"); found {
					owner = strings.ToLower(c.Kind) + "." + group + "/" + c.Name
				}
			}
			return []any{owner, r.Revision, cell.Age(r.CreationTimestamp)}
		}),
	}
}

func validateControllerRevision(r *appsv1.ControllerRevision) field.ErrorList {
	errs := validate.NotNegative(r.Revision, field.NewPath("revision"))
	if r.Data.Raw == nil && r.Data.Object == nil {
		errs = append(errs, field.Required(field.NewPath("data"), "data is mandatory"))
	}
	return errs
}
