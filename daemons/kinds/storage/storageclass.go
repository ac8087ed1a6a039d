package storage

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

// DefaultClassAnnotation marks the storage class for claims without a class.
const DefaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

func StorageClasses() *kind.Kind {
	return &kind.Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("StorageClass"),
		Resource: "storageclasses", Singular: "storageclass", ShortNames: []string{"sc"},
		New: kind.New[storagev1.StorageClass](), NewList: kind.New[storagev1.StorageClassList](),
		Default: kind.Adapt(func(c *storagev1.StorageClass) {
			value.SetDefault(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
			value.SetDefault(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
		}),
		Warnings:       kind.AdaptWarnings(storageClassWarnings),
		Validate:       kind.AdaptValidate(validateStorageClass),
		ValidateUpdate: kind.AdaptValidateUpdate(validateStorageClassUpdate),
		Columns: kind.NewColumns("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode",
			"AllowVolumeExpansion:boolean", "Age"),
		RowHasName: true,
		Row: kind.AdaptRow(func(c *storagev1.StorageClass) []any {
			name := c.Name
			if c.Annotations[DefaultClassAnnotation] == "true" ||
				c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true" {
				name += " (default)"
			}
			return []any{
				name,
				c.Provisioner,
				string(value.OrZero(c.ReclaimPolicy)),
				string(value.OrZero(c.VolumeBindingMode)),
				value.OrZero(c.AllowVolumeExpansion),
				cell.Age(c.CreationTimestamp),
			}
		}),
	}
}

func validateStorageClass(c *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, validateClassParameters(c.Parameters, field.NewPath("parameters"))...)
	errs = append(errs, validateTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
	errs = append(errs, validate.Supported(value.OrZero(c.ReclaimPolicy), []corev1.PersistentVolumeReclaimPolicy{
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain,
	}, field.NewPath("reclaimPolicy"))...)
	return append(errs, validate.Supported(value.OrZero(c.VolumeBindingMode), []storagev1.VolumeBindingMode{
		storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer,
	}, field.NewPath("volumeBindingMode"))...)
}

func validateStorageClassUpdate(c, old *storagev1.StorageClass) field.ErrorList {
	errs := validateStorageClass(c)
	if len(validate.Immutable(c.Parameters, old.Parameters, nil)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	if c.Provisioner != old.Provisioner {
		errs = append(errs, field.Forbidden(field.NewPath("provisioner"), "updates to provisioner are forbidden."))
	}
	if value.OrZero(c.ReclaimPolicy) != value.OrZero(old.ReclaimPolicy) {
		errs = append(errs, field.Forbidden(field.NewPath("reclaimPolicy"), "updates to reclaimPolicy are forbidden."))
	}
	return append(errs, validate.Immutable(c.VolumeBindingMode, old.VolumeBindingMode,
		field.NewPath("volumeBindingMode"))...)
}

// validateProvisioner checks the name of a provisioner or driver.
func validateProvisioner(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validate.Invalid(path, name, validation.IsQualifiedName(strings.ToLower(name)))
}

// validateClassParameters checks the parameters of a class: at most 512, with a total of 256 KiB.
func validateClassParameters(parameters map[string]string, path *field.Path) field.ErrorList {
	const maximum, size = 512, 256 << 10
	if len(parameters) > maximum {
		return field.ErrorList{field.TooLong(path, "", maximum)}
	}
	var errs field.ErrorList
	total := 0
	for k, v := range parameters {
		if k == "" {
			errs = append(errs, field.Invalid(path, k, "field can not be empty."))
		}
		total += len(k) + len(v)
	}
	if total > size {
		errs = append(errs, field.TooLong(path, "", size))
	}
	return errs
}

// validateTopologies checks topology terms: keys are unique in a term, values are unique for a key, and terms are
// unique.
func validateTopologies(terms []corev1.TopologySelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var seen []map[string]sets.Set[string]
	for i, t := range terms {
		keys := map[string]sets.Set[string]{}
		for j, e := range t.MatchLabelExpressions {
			at := path.Index(i).Child("matchLabelExpressions").Index(j)
			if len(e.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), ""))
			}
			values := sets.New[string]()
			for k, v := range e.Values {
				if values.Has(v) {
					errs = append(errs, field.Duplicate(at.Child("values").Index(k), v))
				}
				values.Insert(v)
			}
			errs = append(errs, metavalidation.ValidateLabelName(e.Key, at.Child("key"))...)
			if _, twice := keys[e.Key]; twice {
				errs = append(errs, field.Duplicate(at.Child("key"), e.Key))
			}
			keys[e.Key] = values
		}
		if slices.ContainsFunc(seen,
			func(other map[string]sets.Set[string]) bool { return equality.Semantic.DeepEqual(other, keys) }) {
			errs = append(errs, field.Duplicate(path.Index(i).Child("matchLabelExpressions"), ""))
		}
		seen = append(seen, keys)
	}
	return errs
}

func VolumeAttributesClasses() *kind.Kind {
	return &kind.Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("VolumeAttributesClass"),
		Resource: "volumeattributesclasses", Singular: "volumeattributesclass", ShortNames: []string{"vac"},
		New: kind.New[storagev1.VolumeAttributesClass](), NewList: kind.New[storagev1.VolumeAttributesClassList](),
		Validate: kind.AdaptValidate(validateAttributesClass),
		ValidateUpdate: kind.AdaptValidateUpdate(func(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
			errs := append(validateAttributesClass(c), validate.Immutable(c.DriverName, old.DriverName,
				field.NewPath("driverName"))...)
			return append(errs, validate.Immutable(c.Parameters, old.Parameters, field.NewPath("parameters"))...)
		}),
		Columns: kind.NewColumns("DriverName", "Age"),
		Row: kind.AdaptRow(
			func(c *storagev1.VolumeAttributesClass) []any {
				return []any{c.DriverName, cell.Age(c.CreationTimestamp)}
			},
		),
	}
}

func validateAttributesClass(c *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := validateProvisioner(c.DriverName, field.NewPath("driverName"))
	if len(c.Parameters) == 0 {
		return append(errs, field.Required(field.NewPath("parameters"), "must contain at least one key/value pair"))
	}
	return append(errs, validateClassParameters(c.Parameters, field.NewPath("parameters"))...)
}
