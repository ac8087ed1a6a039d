package device

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// A search that takes too long ends, after a number of tries or a time as configured.
func TestTheSearchForDevicesIsLimited(t *testing.T) {
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("d%02d", i))
	}
	// Eight devices of different types are requested, and there are seven types.
	c := NewCatalog()
	c.SetSlice(sliceOf("s", func(s *resourcev1.ResourceSliceSpec) {
		for i := range s.Devices {
			s.Devices[i].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"kind": {IntValue: ptr.To(int64(i % 7))},
			}
		}
	}, names...))
	claim := claimOf(func(e *resourcev1.ExactDeviceRequest) { e.Count = 8 })
	claim.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{
		{DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName("x.io/kind"))},
	}
	easy := claimOf(nil)
	looks := 0
	// after returns a Start function whose time is over after n checks.
	after := func(n int) func() func() bool {
		return func() func() bool {
			looks = 0
			return func() bool { looks++; return looks > n }
		}
	}
	for name, test := range map[string]struct {
		claim *resourcev1.ResourceClaim
		start func() func() bool
		want  error
		looks int
	}{
		"by tries": {claim, nil, ErrGaveUp, 0},
		"by time":  {claim, after(3), ErrTimedOut, 4},
		"by time, beyond tries": {claim, after(maxTries / triesPerTimeCheck * 2), ErrTimedOut,
			maxTries/triesPerTimeCheck*2 +
				1},
		"a quick one by no time": {easy, after(0), nil, 0},
	} {
		looks = 0
		plan, err := NewPlan([]*resourcev1.ResourceClaim{test.claim}, oneClass, compile)
		if err != nil {
			t.Fatal(err)
		}
		plan.Start = test.start
		_, err = plan.AllocateOn(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, c, NewUse())
		if !errors.Is(err, test.want) || test.want == nil && err != nil || looks != test.looks {
			t.Errorf("%s: %v after %d looks at the time, want %v after %d", name, err, looks, test.want, test.looks)
		}
	}
}
