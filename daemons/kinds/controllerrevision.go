package kinds

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func controllerRevisions() *Kind {
	return &Kind{
		GVK:      appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
		Resource: "controllerrevisions", Singular: "controllerrevision", Namespaced: true,
		New: newOf[appsv1.ControllerRevision](), NewList: newOf[appsv1.ControllerRevisionList](),
		Validate: adaptValidate(validateControllerRevision),
		ValidateUpdate: adaptValidateUpdate(func(r, old *appsv1.ControllerRevision) field.ErrorList {
			return append(validateControllerRevision(r),
				requireImmutable(r.Data.Raw, old.Data.Raw, field.NewPath("data"))...)
		}),
		Columns: newColumns("Controller", "Revision:integer", "Age"),
		Row: adaptRow(func(r *appsv1.ControllerRevision) []any {
			owner := noneText
			if c := metav1.GetControllerOf(r); c != nil {
				owner = strings.ToLower(c.Kind) + "/" + c.Name
				if group, _, found := strings.Cut(c.APIVersion, "/"); found {
					owner = strings.ToLower(c.Kind) + "." + group + "/" + c.Name
				}
			}
			return []any{owner, r.Revision, age(r.CreationTimestamp)}
		}),
	}
}

func validateControllerRevision(r *appsv1.ControllerRevision) field.ErrorList {
	errs := requireNotNegative(r.Revision, field.NewPath("revision"))
	if r.Data.Raw == nil && r.Data.Object == nil {
		errs = append(errs, field.Required(field.NewPath("data"), "data is mandatory"))
	}
	return errs
}
