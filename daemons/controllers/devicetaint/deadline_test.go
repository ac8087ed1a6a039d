package devicetaint

import (
	"math"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestPodsAreEvictedWhenTheirTolerationOfADeviceTaintEnds(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	bad := resourcev1.DeviceTaint{
		Key:       "bad",
		Effect:    resourcev1.DeviceTaintEffectNoExecute,
		TimeAdded: &metav1.Time{Time: start},
	}
	quiet := resourcev1.DeviceTaint{Key: "bad", Effect: resourcev1.DeviceTaintEffectNoSchedule}
	tolerate := func(seconds *int64) resourcev1.DeviceToleration {
		return resourcev1.DeviceToleration{
			Key:               "bad",
			Operator:          resourcev1.DeviceTolerationOpExists,
			TolerationSeconds: seconds,
		}
	}
	rule := func(driver *string) []*resourcev1.DeviceTaintRule {
		return []*resourcev1.DeviceTaintRule{
			{
				Spec: resourcev1.DeviceTaintRuleSpec{
					DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: driver},
					Taint:          bad,
				},
			},
		}
	}
	for name, c := range map[string]struct {
		device      []resourcev1.DeviceTaint
		rules       []*resourcev1.DeviceTaintRule
		tolerations []resourcev1.DeviceToleration
		evict       bool
		after       time.Duration // after the taint was added; negative means at once
	}{
		"no taint":                 {nil, nil, nil, false, 0},
		"no new pods":              {[]resourcev1.DeviceTaint{quiet}, nil, nil, false, 0},
		"tainted by its driver":    {[]resourcev1.DeviceTaint{bad}, nil, nil, true, -1},
		"tainted by a rule":        {nil, rule(ptr.To("x.io")), nil, true, -1},
		"tainted by a rule of all": {nil, rule(nil), nil, true, -1},
		"another driver's rule":    {nil, rule(ptr.To("y.io")), nil, false, 0},
		"tolerated": {[]resourcev1.DeviceTaint{bad}, nil,
			[]resourcev1.DeviceToleration{tolerate(nil)}, false, 0},
		"tolerated for a while": {[]resourcev1.DeviceTaint{bad}, nil,
			[]resourcev1.DeviceToleration{tolerate(ptr.To(int64(60))), tolerate(ptr.To(int64(30)))}, true,
			30 * time.Second},
		"longer than a duration can be": {[]resourcev1.DeviceTaint{bad}, nil,
			[]resourcev1.DeviceToleration{tolerate(ptr.To(int64(math.MaxInt64)))}, true, 100 * 366 * 24 * time.Hour},
		"another taint tolerated": {[]resourcev1.DeviceTaint{bad}, nil,
			[]resourcev1.DeviceToleration{{Key: "other", Operator: resourcev1.DeviceTolerationOpExists}}, true, -1},
	} {
		claim := &resourcev1.ResourceClaim{
			Status: resourcev1.ResourceClaimStatus{
				Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
					Results: []resourcev1.DeviceRequestAllocationResult{
						{Driver: "x.io", Pool: "p", Device: "d", Tolerations: c.tolerations},
					}}},
			},
		}
		devices := func(driver, pool string) []*resourcev1.Device {
			return []*resourcev1.Device{
				{Name: "other", Taints: []resourcev1.DeviceTaint{bad}},
				{Name: "d", Taints: c.device},
			}
		}
		at, evict := Deadline(claim, devices, c.rules)
		if evict != c.evict || evict && c.after < 0 && !at.IsZero() ||
			evict && c.after >= 0 && !at.Equal(start.Add(c.after)) {
			t.Errorf("%s: %v at %v", name, evict, at)
		}
	}
}
