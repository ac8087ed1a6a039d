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
		New: made[resourcev1.DeviceClass](), NewList: made[resourcev1.DeviceClassList](),
		Validate: checks(func(c *resourcev1.DeviceClass) field.ErrorList {
			path := field.NewPath("spec")
			errs := validateSelectors(c.Spec.Selectors, path.Child("selectors"))
			errs = append(errs, tooMany(len(c.Spec.Config), resourcev1.DeviceConfigMaxSize, path.Child("config"))...)
			for i, one := range c.Spec.Config {
				errs = append(
					errs,
					validateDeviceConfiguration(one.DeviceConfiguration, path.Child("config").Index(i))...)
			}
			if name := c.Spec.ExtendedResourceName; name != nil {
				errs = append(errs, invalid(path.Child("extendedResourceName"), *name, extendedResourceName(*name))...)
			}
			return errs
		}),
		Columns: columns("Age"),
		Row:     row(func(c *resourcev1.DeviceClass) []any { return []any{age(c.CreationTimestamp)} }),
	}
}

func deviceTaintRules() *Kind {
	return &Kind{
		GVK:      resourcev1.SchemeGroupVersion.WithKind("DeviceTaintRule"),
		Resource: "devicetaintrules", Singular: "devicetaintrule", HasGeneration: true,
		New: made[resourcev1.DeviceTaintRule](), NewList: made[resourcev1.DeviceTaintRuleList](),
		Default:       does(func(r *resourcev1.DeviceTaintRule) { stampTaint(&r.Spec.Taint) }),
		PrepareCreate: does(func(r *resourcev1.DeviceTaintRule) { r.Status = resourcev1.DeviceTaintRuleStatus{} }),
		PrepareUpdate: updates(func(r, old *resourcev1.DeviceTaintRule) {
			r.Status = old.Status
			// Toleration periods start when the effect changes.
			if r.Spec.Taint.Effect != old.Spec.Taint.Effect && r.Spec.Taint.TimeAdded.Equal(old.Spec.Taint.TimeAdded) {
				r.Spec.Taint.TimeAdded = nil
				stampTaint(&r.Spec.Taint)
			}
		}),
		Validate: checks(func(r *resourcev1.DeviceTaintRule) field.ErrorList {
			path := field.NewPath("spec")
			var errs field.ErrorList
			if s := r.Spec.DeviceSelector; s != nil {
				at := path.Child("deviceSelector")
				if s.Driver != nil {
					errs = append(errs, driverName(*s.Driver, at.Child("driver"))...)
				}
				if s.Pool != nil {
					errs = append(errs, poolName(*s.Pool, at.Child("pool"))...)
				}
				if s.Device != nil {
					errs = append(errs, label(*s.Device, at.Child("device"))...)
				}
			}
			return append(errs, validateDeviceTaint(&r.Spec.Taint, path.Child("taint"))...)
		}),
		Columns: columns("Driver", "Pool", "Effect", "Age"),
		Row: row(func(r *resourcev1.DeviceTaintRule) []any {
			driver, pool := none, none
			if s := r.Spec.DeviceSelector; s != nil {
				driver, pool = orNone(value(s.Driver)), orNone(value(s.Pool))
			}
			return []any{driver, pool, string(r.Spec.Taint.Effect), age(r.CreationTimestamp)}
		}),
		Status: &Status{
			Copy: updates(func(to, from *resourcev1.DeviceTaintRule) { to.Status = *from.Status.DeepCopy() }),
			Validate: compares(func(r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
				path := field.NewPath("status", "conditions")
				errs := tooMany(len(r.Status.Conditions), resourcev1.DeviceTaintRuleStatusMaxConditions, path)
				return append(errs, metavalidation.ValidateConditions(r.Status.Conditions, path)...)
			}),
		},
	}
}

// stampTaint sets the time of a taint to now if it has none.
func stampTaint(t *resourcev1.DeviceTaint) {
	if t.TimeAdded == nil {
		t.TimeAdded = &metav1.Time{Time: now().UTC().Truncate(time.Second)}
	}
}
