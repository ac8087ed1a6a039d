package kinds

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func deviceClasses() *Kind {
	return &Kind{
		GVK:      resourcev1.SchemeGroupVersion.WithKind("DeviceClass"),
		Resource: "deviceclasses", Singular: "deviceclass", HasGeneration: true,
		New: newOf[resourcev1.DeviceClass](), NewList: newOf[resourcev1.DeviceClassList](),
		Validate: adaptValidate(func(c *resourcev1.DeviceClass) field.ErrorList {
			path := field.NewPath("spec")
			errs := validateSelectors(c.Spec.Selectors, path.Child("selectors"))
			errs = append(errs, limitCount(len(c.Spec.Config), resourcev1.DeviceConfigMaxSize, path.Child("config"))...)
			for i, one := range c.Spec.Config {
				errs = append(
					errs,
					validateDeviceConfiguration(one.DeviceConfiguration, path.Child("config").Index(i))...)
			}
			if name := c.Spec.ExtendedResourceName; name != nil {
				errs = append(errs,
					invalidErrors(path.Child("extendedResourceName"), *name, extendedResourceNameErrors(*name))...)
			}
			return errs
		}),
		Columns: newColumns("Age"),
		Row:     adaptRow(func(c *resourcev1.DeviceClass) []any { return []any{age(c.CreationTimestamp)} }),
	}
}

func deviceTaintRules() *Kind {
	return &Kind{
		GVK:      resourcev1.SchemeGroupVersion.WithKind("DeviceTaintRule"),
		Resource: "devicetaintrules", Singular: "devicetaintrule", HasGeneration: true,
		New: newOf[resourcev1.DeviceTaintRule](), NewList: newOf[resourcev1.DeviceTaintRuleList](),
		Default:       adapt(func(r *resourcev1.DeviceTaintRule) { setTaintTime(&r.Spec.Taint) }),
		PrepareCreate: adapt(func(r *resourcev1.DeviceTaintRule) { r.Status = resourcev1.DeviceTaintRuleStatus{} }),
		PrepareUpdate: adaptUpdate(func(r, old *resourcev1.DeviceTaintRule) {
			r.Status = old.Status
			// Toleration periods start when the effect changes.
			if r.Spec.Taint.Effect != old.Spec.Taint.Effect && r.Spec.Taint.TimeAdded.Equal(old.Spec.Taint.TimeAdded) {
				r.Spec.Taint.TimeAdded = nil
				setTaintTime(&r.Spec.Taint)
			}
		}),
		Validate: adaptValidate(func(r *resourcev1.DeviceTaintRule) field.ErrorList {
			path := field.NewPath("spec")
			var errs field.ErrorList
			if s := r.Spec.DeviceSelector; s != nil {
				at := path.Child("deviceSelector")
				if s.Driver != nil {
					errs = append(errs, validateDriverName(*s.Driver, at.Child("driver"))...)
				}
				if s.Pool != nil {
					errs = append(errs, validatePoolName(*s.Pool, at.Child("pool"))...)
				}
				if s.Device != nil {
					errs = append(errs, requireDNSLabel(*s.Device, at.Child("device"))...)
				}
			}
			return append(errs, validateDeviceTaint(&r.Spec.Taint, path.Child("taint"))...)
		}),
		Columns: newColumns("Driver", "Pool", "Effect", "Age"),
		Row: adaptRow(func(r *resourcev1.DeviceTaintRule) []any {
			driver, pool := noneText, noneText
			if s := r.Spec.DeviceSelector; s != nil {
				driver, pool = orNone(valueOrZero(s.Driver)), orNone(valueOrZero(s.Pool))
			}
			return []any{driver, pool, string(r.Spec.Taint.Effect), age(r.CreationTimestamp)}
		}),
		Status: &Status{
			Copy: adaptUpdate(func(to, from *resourcev1.DeviceTaintRule) { to.Status = *from.Status.DeepCopy() }),
			Validate: adaptValidateUpdate(func(r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
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
