package kinds

import (
	migrationv1 "k8s.io/api/storagemigration/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func storageVersionMigrations() *Kind {
	return &Kind{
		GVK:      migrationv1.SchemeGroupVersion.WithKind("StorageVersionMigration"),
		Resource: "storageversionmigrations", Singular: "storageversionmigration", ConditionalUpdate: true,
		New: newOf[migrationv1.StorageVersionMigration](), NewList: newOf[migrationv1.StorageVersionMigrationList](),
		PrepareCreate: adapt(
			func(m *migrationv1.StorageVersionMigration) { m.Status = migrationv1.StorageVersionMigrationStatus{} },
		),
		PrepareUpdate: adaptUpdate(func(m, old *migrationv1.StorageVersionMigration) { m.Status = old.Status }),
		Validate: adaptValidate(func(m *migrationv1.StorageVersionMigration) field.ErrorList {
			path, r := field.NewPath("spec", "resource"), m.Spec.Resource
			var errs field.ErrorList
			if r.Group != "" {
				errs = append(errs, validateDNSSubdomain(r.Group, path.Child("group"))...)
			}
			return append(errs, requireDNSLabel(r.Resource, path.Child("resource"))...)
		}),
		ValidateUpdate: adaptValidateUpdate(func(m, old *migrationv1.StorageVersionMigration) field.ErrorList {
			return requireImmutable(m.Spec, old.Spec, field.NewPath("spec"))
		}),
		Columns: newColumns("Resource", "Age"),
		Row: adaptRow(func(m *migrationv1.StorageVersionMigration) []any {
			name := m.Spec.Resource.Resource
			if group := m.Spec.Resource.Group; group != "" {
				name += "." + group
			}
			return []any{name, age(m.CreationTimestamp)}
		}),
		Status: &Status{
			Copy: adaptUpdate(func(to,
				from *migrationv1.StorageVersionMigration) {
				to.Status = *from.Status.DeepCopy()
			}),
			Validate: adaptValidateUpdate(func(m, old *migrationv1.StorageVersionMigration) field.ErrorList {
				path := field.NewPath("status")
				errs := metavalidation.ValidateConditions(m.Status.Conditions, path.Child("conditions"))
				if old.Status.ResourceVersion != "" {
					errs = append(
						errs,
						requireImmutable(
							m.Status.ResourceVersion,
							old.Status.ResourceVersion,
							path.Child("resourceVersion"),
						)...)
				}
				return errs
			}),
		},
	}
}
