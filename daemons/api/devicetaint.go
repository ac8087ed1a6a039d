package api

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
)

// TaintsDevice reports whether a rule applies to a device. A rule without a selector applies to none, one with an empty
// selector to all.
func TaintsDevice(rule *resourcev1.DeviceTaintRule, driver, pool, device string) bool {
	s := rule.Spec.DeviceSelector
	if s == nil {
		return false
	}
	same := func(want *string, current string) bool { return want == nil || *want == current }
	return same(s.Driver, driver) && same(s.Pool, pool) && same(s.Device, device)
}

// ToleratesDevice reports whether one of the tolerations matches a device's taint by key, value and effect. Toleration
// periods are ignored.
func ToleratesDevice(list []resourcev1.DeviceToleration, taint *resourcev1.DeviceTaint) bool {
	return slices.ContainsFunc(list,
		func(t resourcev1.DeviceToleration) bool { return ToleratesDeviceTaint(&t, taint) })
}

// ToleratesDeviceTaint reports whether a toleration matches a device's taint.
func ToleratesDeviceTaint(t *resourcev1.DeviceToleration, taint *resourcev1.DeviceTaint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		return true
	case resourcev1.DeviceTolerationOpEqual, "":
		return t.Value == taint.Value
	}
	return false
}
