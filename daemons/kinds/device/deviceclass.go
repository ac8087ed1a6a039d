// Package device declares the kinds of dynamic resource allocation (resource.k8s.io).
package device

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
)

func DeviceClasses() *kind.Kind {
	return &kind.Kind{
		GVK:      resourcev1.SchemeGroupVersion.WithKind("DeviceClass"),
		Resource: "deviceclasses", Singular: "deviceclass", HasGeneration: true,
		New: kind.New[resourcev1.DeviceClass](), NewList: kind.New[resourcev1.DeviceClassList](),
		Validate: kind.AdaptValidate(func(c *resourcev1.DeviceClass) field.ErrorList {
			path := field.NewPath("spec")
			errs := validateSelectors(c.Spec.Selectors, path.Child("selectors"))
			errs = append(errs, limitCount(len(c.Spec.Config), resourcev1.DeviceConfigMaxSize, path.Child("config"))...)
			for i, one := range c.Spec.Config {
				errs = append(errs, validateDeviceConfiguration(one.DeviceConfiguration,
					path.Child("config").Index(i))...)
			}
			if name := c.Spec.ExtendedResourceName; name != nil {
				errs = append(errs,
					validate.Invalid(path.Child("extendedResourceName"), *name, extendedResourceNameErrors(*name))...)
			}
			return errs
		}),
		Columns: kind.NewColumns("Age"),
		Row:     kind.AdaptRow(func(c *resourcev1.DeviceClass) []any { return []any{cell.Age(c.CreationTimestamp)} }),
	}
}

func DeviceTaintRules() *kind.Kind {
	return &kind.Kind{
		GVK:      resourcev1.SchemeGroupVersion.WithKind("DeviceTaintRule"),
		Resource: "devicetaintrules", Singular: "devicetaintrule", HasGeneration: true,
		New: kind.New[resourcev1.DeviceTaintRule](), NewList: kind.New[resourcev1.DeviceTaintRuleList](),
		Default: kind.Adapt(func(r *resourcev1.DeviceTaintRule) { setTaintTime(&r.Spec.Taint) }),
		PrepareCreate: kind.Adapt(func(r *resourcev1.DeviceTaintRule) {
			r.Status = resourcev1.DeviceTaintRuleStatus{}
		}),
		PrepareUpdate: kind.AdaptUpdate(func(r, old *resourcev1.DeviceTaintRule) {
			r.Status = old.Status
			// Toleration periods start when the effect changes.
			if r.Spec.Taint.Effect != old.Spec.Taint.Effect && r.Spec.Taint.TimeAdded.Equal(old.Spec.Taint.TimeAdded) {
				r.Spec.Taint.TimeAdded = nil
				setTaintTime(&r.Spec.Taint)
			}
		}),
		Validate: kind.AdaptValidate(func(r *resourcev1.DeviceTaintRule) field.ErrorList {
			path := field.NewPath("spec")
			var errs field.ErrorList
			if s := r.Spec.DeviceSelector; s != nil {
				at := path.Child("deviceSelector")
				if s.Driver != nil {
					errs = append(errs, volume.ValidateDriverName(*s.Driver, at.Child("driver"))...)
				}
				if s.Pool != nil {
					errs = append(errs, validatePoolName(*s.Pool, at.Child("pool"))...)
				}
				if s.Device != nil {
					errs = append(errs, validate.RequiredDNSLabel(*s.Device, at.Child("device"))...)
				}
			}
			return append(errs, validateDeviceTaint(&r.Spec.Taint, path.Child("taint"))...)
		}),
		Columns: kind.NewColumns("Driver", "Pool", "Effect", "Age"),
		Row: kind.AdaptRow(func(r *resourcev1.DeviceTaintRule) []any {
			driver, pool := cell.NoneText, cell.NoneText
			if s := r.Spec.DeviceSelector; s != nil {
				driver, pool = cell.OrNone(value.OrZero(s.Driver)), cell.OrNone(value.OrZero(s.Pool))
			}
			return []any{driver, pool, string(r.Spec.Taint.Effect), cell.Age(r.CreationTimestamp)}
		}),
		Status: &kind.Status{
			Copy: kind.AdaptUpdate(func(to, from *resourcev1.DeviceTaintRule) { to.Status = *from.Status.DeepCopy() }),
			Validate: kind.AdaptValidateUpdate(func(r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
				path := field.NewPath("status", "conditions")
				errs := limitCount(len(r.Status.Conditions), resourcev1.DeviceTaintRuleStatusMaxConditions, path)
				return append(errs, metavalidation.ValidateConditions(r.Status.Conditions, path)...)
			}),
		},
	}
}

// setTaintTime sets the time of a taint to now if it has none.
func setTaintTime(t *resourcev1.DeviceTaint) {
	if t.TimeAdded == nil {
		t.TimeAdded = &metav1.Time{Time: time.Now().UTC().Truncate(time.Second)}
	}
}
