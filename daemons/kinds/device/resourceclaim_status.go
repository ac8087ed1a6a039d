package device

import (
	"net/netip"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
)

// validateClaimStatus checks a claim's allocation, its reservations, and the device data of drivers.
func validateClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	path, s := field.NewPath("status"), &c.Status
	names := map[string]bool{}
	for _, r := range c.Spec.Devices.Requests {
		names[r.Name] = true
		for _, sub := range r.FirstAvailable {
			names[r.Name+"/"+sub.Name] = true
		}
	}
	errs := limitCount(len(s.ReservedFor), resourcev1.ResourceClaimReservedForMaxSize, path.Child("reservedFor"))
	seen := sets.New[string]()
	for i, r := range s.ReservedFor {
		at := path.Child("reservedFor").Index(i)
		if r.APIGroup != "" {
			errs = append(errs, validate.DNSSubdomain(r.APIGroup, at.Child("apiGroup"))...)
		}
		for _, f := range []struct{ name, text string }{{"resource", r.Resource}, {"name", r.Name},
			{"uid", string(r.UID)}} {
			if f.text == "" {
				errs = append(errs, field.Required(at.Child(f.name), ""))
			}
		}
		if seen.Has(string(r.UID)) {
			errs = append(errs, field.Duplicate(at.Child("uid"), r.UID))
		}
		seen.Insert(string(r.UID))
	}
	if len(s.ReservedFor) > 0 && s.Allocation == nil {
		errs = append(errs, field.Forbidden(path.Child("reservedFor"),
			"may not be specified when `allocated` is not set"))
	}
	if c.DeletionTimestamp != nil {
		before := sets.New[string]()
		for _, r := range old.Status.ReservedFor {
			before.Insert(string(r.UID))
		}
		if !before.IsSuperset(seen) {
			errs = append(errs, field.Forbidden(path.Child("reservedFor"),
				"new entries may not be added while claim is being deleted"))
		}
		if s.Allocation != nil && old.Status.Allocation == nil {
			errs = append(errs, field.Forbidden(path.Child("allocation"),
				"new allocations are not allowed while claim is being deleted"))
		}
	}
	if s.Allocation != nil && old.Status.Allocation != nil {
		errs = append(errs, validate.Immutable(s.Allocation, old.Status.Allocation, path.Child("allocation"))...)
	} else if s.Allocation != nil {
		errs = append(errs, validateAllocation(s.Allocation, names, path.Child("allocation"))...)
	}
	reported := sets.New[string]()
	for i := range s.Devices {
		d := &s.Devices[i]
		key := strings.Join([]string{d.Driver, d.Pool, d.Device, value.OrZero(d.ShareID)}, "/")
		if reported.Has(key) {
			errs = append(errs, field.Duplicate(path.Child("devices").Index(i), key))
		}
		reported.Insert(key)
		errs = append(errs, validateDeviceStatus(&s.Devices[i], s.Allocation, path.Child("devices").Index(i))...)
	}
	return errs
}

func validateAllocation(a *resourcev1.AllocationResult, names map[string]bool, path *field.Path) field.ErrorList {
	at := path.Child("devices")
	errs := limitCount(len(a.Devices.Results), resourcev1.AllocationResultsMaxSize, at.Child("results"))
	for i, r := range a.Devices.Results {
		where := at.Child("results").Index(i)
		if !names[r.Request] {
			errs = append(errs, field.Invalid(where.Child("request"), r.Request,
				"must be the name of a request in the claim or the name of a request and a subrequest separated by "+
					"'/'"))
		}
		errs = append(errs, volume.ValidateDriverName(r.Driver, where.Child("driver"))...)
		errs = append(errs, validatePoolName(r.Pool, where.Child("pool"))...)
		errs = append(errs, validate.RequiredDNSLabel(r.Device, where.Child("device"))...)
		errs = append(errs, validateDeviceTolerations(r.Tolerations, where.Child("tolerations"))...)
		errs = append(errs, validateSkipped(r.SkipNodeOperations, where.Child("skipNodeOperations"))...)
		errs = append(errs, validateBindingConditions(r.BindingConditions, resourcev1.BindingConditionsMaxSize,
			where.Child("bindingConditions"))...)
		errs = append(errs, validateBindingConditions(r.BindingFailureConditions,
			resourcev1.BindingFailureConditionsMaxSize, where.Child("bindingFailureConditions"))...)
		if r.ShareID != nil {
			errs = append(errs, validateShareID(string(*r.ShareID), where.Child("shareID"))...)
		}
		for name, q := range r.ConsumedCapacity {
			at := where.Child("consumedCapacity").Key(string(name))
			errs = append(errs, validateQualifiedName(name, at)...)
			if q.Sign() < 0 {
				errs = append(errs, field.Invalid(at, q.String(), "must be greater than or equal to zero"))
			}
		}
	}
	errs = append(errs, limitCount(len(a.Devices.Config), 2*resourcev1.DeviceConfigMaxSize, at.Child("config"))...)
	for i, one := range a.Devices.Config {
		where := at.Child("config").Index(i)
		errs = append(errs, validate.Supported(one.Source, []resourcev1.AllocationConfigSource{
			resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass,
		}, where.Child("source"))...)
		errs = append(errs, validateRequestNames(one.Requests, names, where.Child("requests"))...)
		errs = append(errs, validateDeviceConfiguration(one.DeviceConfiguration, where)...)
	}
	if a.NodeSelector != nil {
		errs = append(errs, requireOneNodeTerm(a.NodeSelector, path.Child("nodeSelector"))...)
	}
	return errs
}

var shareUUID = validate.Pattern(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// validateShareID requires a UUID in the form that the scheduler generates.
func validateShareID(id string, path *field.Path) field.ErrorList {
	if !shareUUID().MatchString(id) {
		return field.ErrorList{field.Invalid(path, id, "must be a lowercase UUID in 8-4-4-4-12 format")}
	}
	return nil
}

// validateBindingConditions requires valid condition names without duplicates.
func validateBindingConditions(list []string, maximum int, path *field.Path) field.ErrorList {
	errs := limitCount(len(list), maximum, path)
	again := validate.MarkRepeats(list)
	for i, name := range list {
		if again[i] {
			errs = append(errs, field.Duplicate(path.Index(i), name))
		}
		errs = append(errs, metavalidation.ValidateLabelName(name, path.Index(i))...)
	}
	return errs
}

func validateDeviceStatus(
	d *resourcev1.AllocatedDeviceStatus,
	a *resourcev1.AllocationResult,
	at *field.Path,
) field.ErrorList {
	errs := volume.ValidateDriverName(d.Driver, at.Child("driver"))
	errs = append(errs, validatePoolName(d.Pool, at.Child("pool"))...)
	errs = append(errs, validate.RequiredDNSLabel(d.Device, at.Child("device"))...)
	if d.ShareID != nil {
		errs = append(errs, validateShareID(*d.ShareID, at.Child("shareID"))...)
	}
	allocated := false
	if a != nil {
		for _, r := range a.Devices.Results {
			share := ""
			if r.ShareID != nil {
				share = string(*r.ShareID)
			}
			allocated = allocated ||
				r.Driver == d.Driver && r.Pool == d.Pool && r.Device == d.Device && share == value.OrZero(d.ShareID)
		}
	}
	if !allocated {
		errs = append(errs, field.Invalid(at, d.Driver+"/"+d.Pool+"/"+d.Device,
			"must be an allocated device in the claim"))
	}
	errs = append(errs, limitCount(len(d.Conditions), resourcev1.AllocatedDeviceStatusMaxConditions,
		at.Child("conditions"))...)
	errs = append(errs, metavalidation.ValidateConditions(d.Conditions, at.Child("conditions"))...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, validateRawObject(d.Data.Raw, resourcev1.AllocatedDeviceStatusDataMaxLength,
			at.Child("data"))...)
	}
	n, where := d.NetworkData, at.Child("networkData")
	if n == nil {
		return errs
	}
	for _, f := range []struct {
		name, text string
		maximum    int
	}{
		{"interfaceName", n.InterfaceName, resourcev1.NetworkDeviceDataInterfaceNameMaxLength},
		{"hardwareAddress", n.HardwareAddress, resourcev1.NetworkDeviceDataHardwareAddressMaxLength},
	} {
		if len(f.text) > f.maximum {
			errs = append(errs, field.TooLong(where.Child(f.name), "", f.maximum))
		}
	}
	errs = append(errs, limitCount(len(n.IPs), resourcev1.NetworkDeviceDataMaxIPs, where.Child("ips"))...)
	again := validate.MarkRepeats(n.IPs)
	for i, ip := range n.IPs {
		if again[i] {
			errs = append(errs, field.Duplicate(where.Child("ips").Index(i), ip))
		}
		if p, err := netip.ParsePrefix(ip); err != nil || p.String() != ip {
			errs = append(errs, field.Invalid(where.Child("ips").Index(i), ip,
				"must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"))
		}
	}
	return errs
}
