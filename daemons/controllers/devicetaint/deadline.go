package devicetaint

import (
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"clusterctl/daemons/api"
)

// Deadline returns when the pods that use a claim must be evicted, and whether they must be at all. Of several
// tolerations of one taint, the shortest counts. devices returns the devices of a pool.
func Deadline(
	claim *resourcev1.ResourceClaim,
	devices func(driver, pool string) []*resourcev1.Device,
	rules []*resourcev1.DeviceTaintRule,
) (at time.Time, evict bool) {
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		for _, taint := range noExecuteTaints(r, devices(r.Driver, r.Pool), rules) {
			due, ever := toleratedUntil(r.Tolerations, &taint)
			if !ever {
				continue
			}
			if !evict || due.Before(at) {
				at = due
			}
			evict = true
		}
	}
	return at, evict
}

// noExecuteTaints returns the NoExecute taints of an allocated device.
func noExecuteTaints(
	r *resourcev1.DeviceRequestAllocationResult,
	devices []*resourcev1.Device,
	rules []*resourcev1.DeviceTaintRule,
) []resourcev1.DeviceTaint {
	var out []resourcev1.DeviceTaint
	for _, d := range devices {
		if d.Name == r.Device {
			out = append(out, d.Taints...)
		}
	}
	for _, rule := range rules {
		if api.TaintsDevice(rule, r.Driver, r.Pool, r.Device) {
			out = append(out, rule.Spec.Taint)
		}
	}
	return slices.DeleteFunc(out,
		func(t resourcev1.DeviceTaint) bool { return t.Effect != resourcev1.DeviceTaintEffectNoExecute })
}

// toleratedUntil returns when a taint stops being tolerated. It returns false if it is tolerated for ever.
func toleratedUntil(tolerations []resourcev1.DeviceToleration, taint *resourcev1.DeviceTaint) (time.Time, bool) {
	tolerated := false
	var limit *int64
	for i := range tolerations {
		t := &tolerations[i]
		if !api.ToleratesDeviceTaint(t, taint) {
			continue
		}
		tolerated = true
		if s := t.TolerationSeconds; s != nil && (limit == nil || *s < *limit) {
			limit = s
		}
	}
	switch {
	case tolerated && limit == nil:
		return time.Time{}, false
	case tolerated && taint.TimeAdded != nil:
		return taint.TimeAdded.Add(api.Seconds(max(*limit, 0))), true
	}
	return time.Time{}, true
}
