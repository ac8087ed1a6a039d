package cluster

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/scheduler/device"
)

func TestDevicesOfUncertainWritesStayInUse(t *testing.T) {
	result := &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d", Pool: "p", Device: "one"}},
	}}
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u", ResourceVersion: "5"},
	}
	shown := claim.DeepCopy()
	shown.ResourceVersion, shown.Status.Allocation = "6", result
	later := claim.DeepCopy()
	later.ResourceVersion = "7"
	for name, test := range map[string]struct {
		then func(*Devices)
		want bool // still assumed
	}{
		"nothing is known":             {func(*Devices) {}, true},
		"an event without devices":     {func(d *Devices) { d.Set(later) }, true},
		"an event with the devices":    {func(d *Devices) { d.Set(shown) }, false},
		"the claim is gone":            {func(d *Devices) { d.Delete(claim) }, false},
		"it was not written":           {func(d *Devices) { d.ConfirmUnwritten(claim) }, false},
		"a read shows it before watch": {func(d *Devices) { d.MarkWritten(shown) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevices()
			d.Set(claim)
			list := []*device.Allocation{{Claim: claim, Result: result}}
			d.Assume(list)
			d.MarkUncertain(claim)
			d.Release(list)
			test.then(d)
			if got := d.IsAssumed(claim); got != test.want {
				t.Errorf("assumed: %v, want %v", got, test.want)
			}
		})
	}
}
