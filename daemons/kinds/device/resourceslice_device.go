package device

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func validateDevice(d *resourcev1.Device, perDevice bool, at *field.Path) field.ErrorList {
	errs := validate.RequiredDNSLabel(d.Name, at.Child("name"))
	errs = append(errs, limitCount(len(d.Attributes)+len(d.Capacity),
		resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice, at)...)
	for name, a := range d.Attributes {
		where := at.Child("attributes").Key(string(name))
		errs = append(errs, validateQualifiedName(name, where)...)
		errs = append(errs, validateDeviceAttribute(&a, where)...)
	}
	for name, c := range d.Capacity {
		where := at.Child("capacity").Key(string(name))
		errs = append(errs, validateQualifiedName(name, where)...)
		if p := c.RequestPolicy; p != nil {
			if !value.OrZero(d.AllowMultipleAllocations) {
				errs = append(errs, field.Forbidden(where.Child("requestPolicy"),
					"allowMultipleAllocations must be true"))
			}
			errs = append(errs, validateRequestPolicy(p, c.Value, where.Child("requestPolicy"))...)
		}
	}
	errs = append(errs, validateConsumption(d.ConsumesCounters, at.Child("consumesCounters"))...)
	errs = append(errs, limitCount(len(d.Taints), resourcev1.DeviceTaintsMaxLength, at.Child("taints"))...)
	for i := range d.Taints {
		errs = append(errs, validateDeviceTaint(&d.Taints[i], at.Child("taints").Index(i))...)
	}
	for _, c := range []struct {
		name    string
		list    []string
		maximum int
	}{
		{"bindingConditions", d.BindingConditions, resourcev1.BindingConditionsMaxSize},
		{"bindingFailureConditions", d.BindingFailureConditions, resourcev1.BindingFailureConditionsMaxSize},
	} {
		errs = append(errs, validateBindingConditions(c.list, c.maximum, at.Child(c.name))...)
	}
	if len(d.BindingConditions) > 0 != (len(d.BindingFailureConditions) > 0) {
		errs = append(errs, field.Invalid(at.Child("bindingConditions"), d.BindingConditions,
			"bindingConditions and bindingFailureConditions must be set together"))
	}
	return append(errs, validateDeviceNodes(d, perDevice, at)...)
}

// validateDeviceNodes requires that a device selects its nodes if and only if its slice leaves that to the devices.
func validateDeviceNodes(d *resourcev1.Device, perDevice bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	ways := 0
	for _, way := range []struct {
		name string
		set  bool
	}{{"nodeName", d.NodeName != nil}, {"nodeSelector", d.NodeSelector != nil}, {"allNodes", d.AllNodes != nil}} {
		if !way.set {
			continue
		}
		if ways++; !perDevice {
			errs = append(errs, field.Invalid(at.Child(way.name), "",
				"field can only be set when `perDeviceNodeSelection` is true in the slice's spec"))
		}
	}
	if perDevice && ways != 1 {
		errs = append(errs, field.Required(at, "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required "+
			"when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"))
	}
	if d.NodeName != nil {
		errs = append(errs, validate.DNSSubdomain(*d.NodeName, at.Child("nodeName"))...)
	}
	if d.NodeSelector != nil {
		errs = append(errs, requireOneNodeTerm(d.NodeSelector, at.Child("nodeSelector"))...)
	}
	if d.AllNodes != nil && !*d.AllNodes {
		errs = append(errs, field.Invalid(at.Child("allNodes"), false, "must be either unset or set to true"))
	}
	return errs
}

// validateDeviceAttribute requires exactly one value or list of values.
func validateDeviceAttribute(a *resourcev1.DeviceAttribute, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := 0
	for _, set := range []bool{a.IntValue != nil, a.BoolValue != nil, a.StringValue != nil, a.VersionValue != nil,
		a.IntValues != nil, a.BoolValues != nil, a.StringValues != nil, a.VersionValues != nil} {
		if set {
			values++
		}
	}
	switch values {
	case 0:
		return field.ErrorList{field.Required(at, "exactly one value must be specified")}
	case 1:
	default:
		return field.ErrorList{field.Invalid(at, a, "exactly one value must be specified")}
	}
	text := func(v string, isVersion bool, where *field.Path) {
		if len(v) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(where, v, resourcev1.DeviceAttributeMaxValueLength))
		}
		if isVersion {
			if _, err := version.ParseSemantic(v); err != nil {
				errs = append(errs, field.Invalid(where, v, "must be a string compatible with semver.org spec 2.0.0"))
			}
		}
	}
	if a.StringValue != nil {
		text(*a.StringValue, false, at.Child("string"))
	}
	if a.VersionValue != nil {
		text(*a.VersionValue, true, at.Child("version"))
	}
	for i, v := range a.StringValues {
		text(v, false, at.Child("strings").Index(i))
	}
	for i, v := range a.VersionValues {
		text(v, true, at.Child("versions").Index(i))
	}
	return errs
}

func validateRequestPolicy(
	p *resourcev1.CapacityRequestPolicy,
	whole resource.Quantity,
	at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if len(p.ValidValues) > 0 && p.ValidRange != nil {
		errs = append(errs, field.Forbidden(at,
			"exactly one policy can be specified, cannot specify `validValues` and `validRange` at the same time"))
	}
	if p.Default == nil && (len(p.ValidValues) > 0 || p.ValidRange != nil) {
		return append(errs, field.Required(at.Child("default"),
			"required when `validValues` or `validRange` is defined"))
	}
	errs = append(errs, limitCount(len(p.ValidValues), 10, at.Child("validValues"))...)
	found := len(p.ValidValues) == 0
	for i, v := range p.ValidValues {
		where := at.Child("validValues").Index(i)
		if i > 0 && v.Cmp(p.ValidValues[i-1]) <= 0 {
			errs = append(errs, field.Invalid(where, v.String(), "values must be sorted in ascending order"))
		}
		if v.Cmp(whole) > 0 {
			errs = append(errs, field.Invalid(where, v.String(),
				"option is larger than capacity value: "+whole.String()))
		}
		found = found || v.Cmp(*p.Default) == 0
	}
	if !found {
		errs = append(errs, field.Invalid(at.Child("default"), p.Default.String(),
			"default value is not valid according to the requestPolicy"))
	}
	return append(errs, validateRequestRange(p, whole, at)...)
}

// validateRequestRange checks the range of a policy, which may be missing, and that the default is in it.
func validateRequestRange(
	p *resourcev1.CapacityRequestPolicy,
	whole resource.Quantity,
	at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	r := p.ValidRange
	if r == nil {
		return errs
	}
	where := at.Child("validRange")
	if r.Min == nil {
		return append(errs, field.Required(where.Child("min"), "minimum value must be defined for `validRange`"))
	}
	if r.Min.Sign() < 0 || r.Min.Cmp(whole) > 0 {
		errs = append(errs, field.Invalid(where.Child("min"), r.Min.String(),
			"min is larger than capacity value: "+whole.String()))
	}
	if r.Max != nil && (r.Max.Cmp(*r.Min) < 0 || r.Max.Cmp(whole) > 0) {
		errs = append(errs, field.Invalid(where.Child("max"), r.Max.String(),
			"max must not be less than min nor larger than capacity value: "+whole.String()))
	}
	if p.Default.Cmp(*r.Min) < 0 || r.Max != nil && p.Default.Cmp(*r.Max) > 0 {
		errs = append(errs, field.Invalid(at.Child("default"), p.Default.String(),
			"default value is not valid according to the requestPolicy"))
	}
	if r.Step != nil && r.Step.Sign() <= 0 {
		errs = append(errs, field.Invalid(where.Child("step"), r.Step.String(), "must be greater than zero"))
	}
	return errs
}

func validateCounterSets(list []resourcev1.CounterSet, path *field.Path) field.ErrorList {
	errs := limitCount(len(list), resourcev1.ResourceSliceMaxCounterSets, path)
	seen := sets.New[string]()
	for i, s := range list {
		at := path.Index(i)
		if seen.Has(s.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		seen.Insert(s.Name)
		errs = append(errs, validate.RequiredDNSLabel(s.Name, at.Child("name"))...)
		errs = append(errs, validateCounters(s.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet,
			at.Child("counters"))...)
	}
	return errs
}

func validateConsumption(list []resourcev1.DeviceCounterConsumption, path *field.Path) field.ErrorList {
	errs := limitCount(len(list), resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, path)
	seen := sets.New[string]()
	for i, c := range list {
		at := path.Index(i)
		if seen.Has(c.CounterSet) {
			errs = append(errs, field.Duplicate(at.Child("counterSet"), c.CounterSet))
		}
		seen.Insert(c.CounterSet)
		errs = append(errs, validate.RequiredDNSLabel(c.CounterSet, at.Child("counterSet"))...)
		errs = append(errs, validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption,
			at.Child("counters"))...)
		errs = append(errs, limitCount(len(c.CompatibilityGroups), resourcev1.DeviceCompatibilityGroupsMaxSize,
			at.Child("compatibilityGroups"))...)
		for j, g := range c.CompatibilityGroups {
			errs = append(errs, validate.RequiredDNSLabel(g, at.Child("compatibilityGroups").Index(j))...)
		}
	}
	return errs
}

func validateCounters(counters map[string]resourcev1.Counter, maximum int, path *field.Path) field.ErrorList {
	if len(counters) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := limitCount(len(counters), maximum, path)
	for name := range counters {
		errs = append(errs, validate.DNSLabel(name, path.Key(name))...)
	}
	return errs
}
