package volume

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func ValidateClaim(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	errs := ValidateAccessModes(spec.AccessModes, path.Child("accessModes"))
	if spec.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector,
			metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	}
	storage := path.Child("resources").Key(string(corev1.ResourceStorage))
	if q, ok := spec.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(storage, ""))
	} else if q.Sign() <= 0 {
		errs = append(errs, field.Invalid(storage, q.String(), "must be greater than zero"))
	}
	if class := value.OrZero(spec.StorageClassName); class != "" {
		errs = append(errs, validate.DNSSubdomain(class, path.Child("storageClassName"))...)
	}
	if spec.VolumeMode != nil {
		errs = append(errs, validate.Supported(*spec.VolumeMode, []corev1.PersistentVolumeMode{
			corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem,
		}, path.Child("volumeMode"))...)
	}
	errs = append(errs, ValidateAttributesClassName(spec.VolumeAttributesClassName,
		path.Child("volumeAttributesClassName"))...)
	if d := spec.DataSource; d != nil {
		errs = append(errs, validateDataSource(d.APIGroup, d.Kind, d.Name, path.Child("dataSource"))...)
	}
	if a, b := spec.DataSource, spec.DataSourceRef; a != nil && b != nil && value.OrZero(b.Namespace) == "" &&
		(!value.Same(a.APIGroup, b.APIGroup) || a.Kind != b.Kind || a.Name != b.Name) {
		errs = append(errs, field.Invalid(path, path.Child("dataSource").String(), "must match dataSourceRef"))
	}
	if d := spec.DataSourceRef; d != nil {
		at := path.Child("dataSourceRef")
		errs = append(errs, validateDataSource(d.APIGroup, d.Kind, d.Name, at)...)
		if ns := value.OrZero(d.Namespace); ns != "" {
			errs = append(errs, validate.DNSLabel(ns, at.Child("namespace"))...)
			if spec.DataSource != nil {
				errs = append(errs, field.Invalid(path.Child("dataSource"), spec.DataSource,
					"may not be specified when dataSourceRef.namespace is specified"))
			}
		}
	}
	return errs
}

// validateDataSource checks the data source of a volume: a claim, or an object of another API group.
func validateDataSource(group *string, kind, name string, path *field.Path) field.ErrorList {
	errs := append(validate.Required(name, path.Child("name"), ""), validate.Required(kind, path.Child("kind"), "")...)
	if g := value.OrZero(group); g != "" {
		errs = append(errs, validate.DNSSubdomain(g, path.Child("apiGroup"))...)
	} else if kind != "PersistentVolumeClaim" {
		errs = append(errs, field.Invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default "+
			"apiGroup"))
	}
	return errs
}

func ValidateAccessModes(modes []corev1.PersistentVolumeAccessMode, path *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(path, "at least 1 access mode is required")}
	}
	var errs field.ErrorList
	for _, m := range modes {
		if !slices.Contains(allAccessModes, m) {
			errs = append(errs, validate.NotSupported(path, m, allAccessModes))
		}
	}
	if len(modes) > 1 && slices.Contains(modes, corev1.ReadWriteOncePod) {
		errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

var allAccessModes = []corev1.PersistentVolumeAccessMode{
	corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod,
}

func ValidateAttributesClassName(name *string, at *field.Path) field.ErrorList {
	switch {
	case name == nil:
		return nil
	case *name == "":
		return field.ErrorList{field.Required(at, "an empty string is disallowed")}
	}
	return validate.DNSSubdomain(*name, at)
}

func DefaultClaim(c *corev1.PersistentVolumeClaim) {
	value.SetEmpty(&c.Status.Phase, corev1.ClaimPending)
	value.SetDefault(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}
