package extensions

import (
	migrationv1 "k8s.io/api/storagemigration/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
)

func StorageVersionMigrations() *kind.Kind {
	return &kind.Kind{
		GVK:      migrationv1.SchemeGroupVersion.WithKind("StorageVersionMigration"),
		Resource: "storageversionmigrations", Singular: "storageversionmigration", ConditionalUpdate: true,
		New:     kind.New[migrationv1.StorageVersionMigration](),
		NewList: kind.New[migrationv1.StorageVersionMigrationList](),
		PrepareCreate: kind.Adapt(
			func(m *migrationv1.StorageVersionMigration) { m.Status = migrationv1.StorageVersionMigrationStatus{} },
		),
		PrepareUpdate: kind.AdaptUpdate(func(m, old *migrationv1.StorageVersionMigration) { m.Status = old.Status }),
		Validate: kind.AdaptValidate(func(m *migrationv1.StorageVersionMigration) field.ErrorList {
			path, r := field.NewPath("spec", "resource"), m.Spec.Resource
			var errs field.ErrorList
			if r.Group != "" {
				errs = append(errs, validate.DNSSubdomain(r.Group, path.Child("group"))...)
			}
			return append(errs, validate.RequiredDNSLabel(r.Resource, path.Child("resource"))...)
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(func(m, old *migrationv1.StorageVersionMigration) field.ErrorList {
			return validate.Immutable(m.Spec, old.Spec, field.NewPath("spec"))
		}),
		Columns: kind.NewColumns("Resource", "Age"),
		Row: kind.AdaptRow(func(m *migrationv1.StorageVersionMigration) []any {
			name := m.Spec.Resource.Resource
			if group := m.Spec.Resource.Group; group != "" {
				name += "." + group
			}
			return []any{name, cell.Age(m.CreationTimestamp)}
		}),
		Status: &kind.Status{
			Copy: kind.AdaptUpdate(func(to,
				from *migrationv1.StorageVersionMigration) {
				to.Status = *from.Status.DeepCopy()
			}),
			Validate: kind.AdaptValidateUpdate(func(m, old *migrationv1.StorageVersionMigration) field.ErrorList {
				path := field.NewPath("status")
				errs := metavalidation.ValidateConditions(m.Status.Conditions, path.Child("conditions"))
				if old.Status.ResourceVersion != "" {
					errs = append(errs, validate.Immutable(m.Status.ResourceVersion, old.Status.ResourceVersion,
						path.Child("resourceVersion"))...)
				}
				return errs
			}),
		},
	}
}
