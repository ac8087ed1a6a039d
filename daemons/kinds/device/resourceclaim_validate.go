package device

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/expression"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/volume"
)

// validateDeviceClaim checks what a claim requests. Request names must be unique, and constraints and configurations
// must refer to them.
func validateDeviceClaim(c *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	errs := limitCount(len(c.Requests), resourcev1.DeviceRequestsMaxSize, path.Child("requests"))
	names := map[string]bool{} // names of requests, and of subrequests as REQUEST/SUBREQUEST
	for i := range c.Requests {
		r, at := &c.Requests[i], path.Child("requests").Index(i)
		if names[r.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), r.Name))
		}
		names[r.Name] = true
		errs = append(errs, validateDeviceRequest(r, names, at)...)
	}
	errs = append(errs, limitCount(len(c.Constraints), resourcev1.DeviceConstraintsMaxSize,
		path.Child("constraints"))...)
	for i, one := range c.Constraints {
		at := path.Child("constraints").Index(i)
		errs = append(errs, validateRequestNames(one.Requests, names, at.Child("requests"))...)
		switch {
		case one.MatchAttribute != nil && one.DistinctAttribute != nil:
			errs = append(errs, field.Invalid(at, "",
				"exactly one of `matchAttribute` and `distinctAttribute` must be set"))
		case one.MatchAttribute != nil:
			errs = append(errs, validateFullyQualified(*one.MatchAttribute, at.Child("matchAttribute"))...)
		case one.DistinctAttribute != nil:
			errs = append(errs, validateFullyQualified(*one.DistinctAttribute, at.Child("distinctAttribute"))...)
		default:
			errs = append(errs, field.Required(at.Child("matchAttribute"), ""))
		}
	}
	errs = append(errs, limitCount(len(c.Config), resourcev1.DeviceConfigMaxSize, path.Child("config"))...)
	for i, one := range c.Config {
		at := path.Child("config").Index(i)
		errs = append(errs, validateRequestNames(one.Requests, names, at.Child("requests"))...)
		errs = append(errs, validateDeviceConfiguration(one.DeviceConfiguration, at)...)
	}
	return errs
}

func validateDeviceRequest(r *resourcev1.DeviceRequest, names map[string]bool, at *field.Path) field.ErrorList {
	errs := validate.RequiredDNSLabel(r.Name, at.Child("name"))
	switch {
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		return append(errs, field.Invalid(at, r,
			"exactly one of `exactly` and `firstAvailable` is required, but multiple fields are set"))
	case r.Exactly != nil:
		e := r.Exactly
		return append(errs, validateRequestSpec(requestSpec{
			e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations, e.Capacity,
		}, at.Child("exactly"))...)
	case len(r.FirstAvailable) == 0:
		return append(errs, field.Required(at, "exactly one of `exactly` and `firstAvailable` is required"))
	}
	errs = append(errs, limitCount(len(r.FirstAvailable), resourcev1.FirstAvailableDeviceRequestMaxSize,
		at.Child("firstAvailable"))...)
	for i := range r.FirstAvailable {
		sub, where := &r.FirstAvailable[i], at.Child("firstAvailable").Index(i)
		errs = append(errs, validate.RequiredDNSLabel(sub.Name, where.Child("name"))...)
		name := r.Name + "/" + sub.Name
		if names[name] {
			errs = append(errs, field.Duplicate(where.Child("name"), sub.Name))
		}
		names[name] = true
		errs = append(errs, validateRequestSpec(requestSpec{
			sub.DeviceClassName, sub.Selectors, sub.AllocationMode, sub.Count, sub.Tolerations, sub.Capacity,
		}, where)...)
	}
	return errs
}

// requestSpec holds what requests and subrequests have in common.
type requestSpec struct {
	class       string
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
	capacity    *resourcev1.CapacityRequirements
}

func validateRequestSpec(a requestSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if a.class == "" {
		errs = append(errs, field.Required(at.Child("deviceClassName"), ""))
	} else {
		errs = append(errs, validate.DNSSubdomain(a.class, at.Child("deviceClassName"))...)
	}
	errs = append(errs, validateSelectors(a.selectors, at.Child("selectors"))...)
	switch a.mode {
	case resourcev1.DeviceAllocationModeAll:
		if a.count != 0 {
			errs = append(errs, field.Invalid(at.Child("count"), a.count,
				"must not be specified when allocationMode is 'All'"))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if a.count <= 0 {
			errs = append(errs, field.Invalid(at.Child("count"), a.count, "must be greater than zero"))
		}
	default:
		errs = append(errs, validate.NotSupported(at.Child("allocationMode"), a.mode, []resourcev1.DeviceAllocationMode{
			resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount,
		}))
	}
	errs = append(errs, validateDeviceTolerations(a.tolerations, at.Child("tolerations"))...)
	if a.capacity != nil {
		for name := range a.capacity.Requests {
			errs = append(errs, validateQualifiedName(name, at.Child("capacity", "requests").Key(string(name)))...)
		}
	}
	return errs
}

// validateSelectors checks device selectors, each of which is a CEL expression.
func validateSelectors(list []resourcev1.DeviceSelector, path *field.Path) field.ErrorList {
	errs := limitCount(len(list), resourcev1.DeviceSelectorsMaxSize, path)
	for i, s := range list {
		at := path.Index(i).Child("cel")
		switch {
		case s.CEL == nil:
			errs = append(errs, field.Required(at, ""))
		case s.CEL.Expression == "":
			errs = append(errs, field.Required(at.Child("expression"), ""))
		case len(s.CEL.Expression) > resourcev1.CELSelectorExpressionMaxLength:
			errs = append(errs, field.TooLong(at.Child("expression"), "", resourcev1.CELSelectorExpressionMaxLength))
		default:
			if err := expression.CheckDevice(s.CEL.Expression); err != nil {
				errs = append(errs, field.Invalid(at.Child("expression"), s.CEL.Expression, err.Error()))
			}
		}
	}
	return errs
}

// validateRequestNames requires that the listed requests exist, without duplicates.
func validateRequestNames(list []string, names map[string]bool, path *field.Path) field.ErrorList {
	errs := limitCount(len(list), resourcev1.DeviceRequestsMaxSize, path)
	seen := map[string]bool{}
	for i, name := range list {
		if seen[name] {
			errs = append(errs, field.Duplicate(path.Index(i), name))
		}
		seen[name] = true
		if names[name] {
			continue
		}
		text := "must be the name of a request in the claim"
		if strings.Contains(name, "/") {
			text = "must be the name of a request in the claim or the name of a request and a subrequest separated " +
				"by '/'"
		}
		errs = append(errs, field.Invalid(path.Index(i), name, text))
	}
	return errs
}

func validateDeviceConfiguration(c resourcev1.DeviceConfiguration, at *field.Path) field.ErrorList {
	o := c.Opaque
	if o == nil {
		return field.ErrorList{field.Required(at.Child("opaque"), "")}
	}
	errs := volume.ValidateDriverName(o.Driver, at.Child("opaque", "driver"))
	return append(errs, validateRawObject(o.Parameters.Raw, resourcev1.OpaqueParametersMaxLength,
		at.Child("opaque", "parameters"))...)
}
