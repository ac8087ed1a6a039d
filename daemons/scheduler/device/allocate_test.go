package device

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

func sliceOf(name string, change func(*resourcev1.ResourceSliceSpec), devices ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "x.io", NodeName: ptr.To("n1"), Pool: resourcev1.ResourcePool{Name: "p", ResourceSliceCount: 1}}}
	for _, d := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: d})
	}
	if change != nil {
		change(&s.Spec)
	}
	return s
}

func claimOf(change func(*resourcev1.ExactDeviceRequest)) *resourcev1.ResourceClaim {
	e := &resourcev1.ExactDeviceRequest{
		DeviceClassName: "class",
		AllocationMode:  resourcev1.DeviceAllocationModeExactCount,
		Count:           1,
	}
	if change != nil {
		change(e)
	}
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "c"},
		Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: e}}}},
	}
}

func allocate(node string, c *Catalog, claims ...*resourcev1.ResourceClaim) ([]*Allocation, error) {
	plan, err := NewPlan(claims, oneClass, compile)
	if err != nil {
		return nil, err
	}
	return plan.AllocateOn(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"zone": "a"}}},
		c,
		NewUse(),
	)
}

//style:long a table of slices and claims, with the allocation of each
func TestDevicesAreAllocatedFromCompletePoolsOfReachableNodes(t *testing.T) {
	zone := func(value string) *corev1.NodeSelector {
		return &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}},
		}
	}
	all := func(e *resourcev1.ExactDeviceRequest) {
		e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeAll, 0
	}
	two := func(s *resourcev1.ResourceSliceSpec) { s.Pool.ResourceSliceCount = 2 }
	for name, c := range map[string]struct {
		slices  []*resourcev1.ResourceSlice
		rule    *resourcev1.DeviceTaintRule
		claim   *resourcev1.ResourceClaim
		want    string // devices and the field of the node selector
		refused string
	}{
		"of the node": {[]*resourcev1.ResourceSlice{sliceOf("s", nil, "a", "b")}, nil, claimOf(nil),
			"a metadata.name", ""},
		"of another": {[]*resourcev1.ResourceSlice{sliceOf("s",
			func(s *resourcev1.ResourceSliceSpec) { s.NodeName = ptr.To("n2") }, "a")}, nil, claimOf(nil), "",
			"cannot allocate all claims"},
		"of a zone": {[]*resourcev1.ResourceSlice{sliceOf("s",
			func(s *resourcev1.ResourceSliceSpec) { s.NodeName, s.NodeSelector = nil, zone("a") }, "a")}, nil,
			claimOf(nil), "a zone", ""},
		"another zone's": {[]*resourcev1.ResourceSlice{sliceOf("s",
			func(s *resourcev1.ResourceSliceSpec) { s.NodeName, s.NodeSelector = nil, zone("b") }, "a")}, nil,
			claimOf(nil), "", "cannot allocate all claims"},
		"of all nodes": {[]*resourcev1.ResourceSlice{sliceOf("s",
			func(s *resourcev1.ResourceSliceSpec) { s.NodeName, s.AllNodes = nil, ptr.To(true) }, "a")}, nil,
			claimOf(nil), "a", ""},
		"a slice is missing": {[]*resourcev1.ResourceSlice{sliceOf("s", two, "a")}, nil, claimOf(nil), "",
			"cannot allocate all claims"},
		"two slices": {[]*resourcev1.ResourceSlice{sliceOf("t", two, "b"), sliceOf("s", two, "a")}, nil,
			claimOf(all), "a b metadata.name", ""},
		"all of a part": {[]*resourcev1.ResourceSlice{sliceOf("s", two, "a")}, nil, claimOf(all), "",
			"claim d/c, request r: asks for all devices, but resource pool x.io/p is currently being updated"},
		"an older generation": {[]*resourcev1.ResourceSlice{sliceOf("s", nil, "a"),
			sliceOf("t", func(s *resourcev1.ResourceSliceSpec) { s.Pool.Generation = 1 }, "b")}, nil, claimOf(all),
			"b metadata.name", ""},
		"one name twice": {[]*resourcev1.ResourceSlice{sliceOf("s", two, "a"), sliceOf("t", two, "a")}, nil,
			claimOf(nil), "", "invalid resource pools were encountered"},
		"too many": {[]*resourcev1.ResourceSlice{sliceOf("s", nil, "a")}, nil,
			claimOf(func(e *resourcev1.ExactDeviceRequest) { e.Count = 33 }), "", "exceeds the claim limit of 32"},
		"a rule taints it": {[]*resourcev1.ResourceSlice{sliceOf("s", nil, "a", "b")},
			&resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: resourcev1.DeviceTaintRuleSpec{
				DeviceSelector: &resourcev1.DeviceTaintSelector{Device: ptr.To("a")},
				Taint:          resourcev1.DeviceTaint{Key: "k", Effect: resourcev1.DeviceTaintEffectNoExecute}}},
			claimOf(nil), "b metadata.name", ""},
		"binding conditions": {[]*resourcev1.ResourceSlice{sliceOf("s", func(s *resourcev1.ResourceSliceSpec) {
			s.Devices = []resourcev1.Device{{Name: "a", BindingConditions: []string{"ready"}}}
		})}, nil, claimOf(nil), "", "there are devices with binding conditions, which this scheduler does not carry " +
			"out"},
		"derived attributes": {[]*resourcev1.ResourceSlice{sliceOf("s", nil, "a")}, nil,
			claimOf(func(e *resourcev1.ExactDeviceRequest) {
				e.DerivedAttributes = []resourcev1.DeviceDerivedAttribute{{Name: "x.io/y"}}
			}), "", "derived attributes are not supported by this scheduler"},
		"no such attribute": {[]*resourcev1.ResourceSlice{sliceOf("s", nil, "a")}, nil,
			claimOf(func(e *resourcev1.ExactDeviceRequest) {
				e.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["x.io"].missing == 1`}}}
			}), "", "claim d/c: selector #0 on device x.io/p/a: CEL runtime error: no such key: missing"},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := NewCatalog()
			for _, s := range c.slices {
				catalog.SetSlice(s)
			}
			if c.rule != nil {
				catalog.SetRule(c.rule)
			}
			got, err := allocate("n1", catalog, c.claim)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("%v, want %s", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for _, r := range got[0].Result.Devices.Results {
				words = append(words, r.Device)
			}
			if s := got[0].Result.NodeSelector; s != nil {
				for _, r := range append(s.NodeSelectorTerms[0].MatchFields,
					s.NodeSelectorTerms[0].MatchExpressions...) {
					words = append(words, r.Key)
				}
			}
			if text := strings.Join(words, " "); text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}

func TestClassConfigurationsComeFirst(t *testing.T) {
	config := func(text string) resourcev1.DeviceConfiguration {
		return resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{
				Driver:     "x.io",
				Parameters: runtime.RawExtension{Raw: []byte(text)},
			},
		}
	}
	classes := func(name string) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourcev1.DeviceClassSpec{
				Config: []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: config(name)}},
			},
		}
	}
	claim := claimOf(func(e *resourcev1.ExactDeviceRequest) { e.DeviceClassName = "one" })
	claim.Spec.Devices.Requests = append(
		claim.Spec.Devices.Requests,
		resourcev1.DeviceRequest{Name: "s", FirstAvailable: []resourcev1.DeviceSubRequest{
			{Name: "big", DeviceClassName: "two", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 9},
			{
				Name:            "small",
				DeviceClassName: "two",
				AllocationMode:  resourcev1.DeviceAllocationModeExactCount,
				Count:           1,
			},
		}},
	)
	claim.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{
		{
			Requests:            []string{"s/big"},
			DeviceConfiguration: config("big"),
		}, {Requests: []string{"s"}, DeviceConfiguration: config("s")},
		{Requests: []string{"r", "s/small"}, DeviceConfiguration: config("both")}, {DeviceConfiguration: config("all")},
	}
	catalog := NewCatalog()
	catalog.SetSlice(sliceOf("s", nil, "a", "b", "c"))
	plan, err := NewPlan([]*resourcev1.ResourceClaim{claim}, classes, compile)
	if err != nil {
		t.Fatal(err)
	}
	got, err := plan.AllocateOn(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, catalog, NewUse())
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, c := range got[0].Result.Devices.Config {
		text = append(text, fmt.Sprintf("%s %s %v", c.Source, c.Opaque.Parameters.Raw, c.Requests))
	}
	want := "FromClass one [r]; FromClass two [s/small]; FromClaim s [s]; FromClaim both []; FromClaim all []"
	if current := strings.Join(text, "; "); current != want {
		t.Errorf("got  %s\nwant %s", current, want)
	}
	if PreferenceScore(got) != resourcev1.FirstAvailableDeviceRequestMaxSize-1 || !plan.HasAlternatives() {
		t.Errorf("the second of the options counts %d", PreferenceScore(got))
	}
}

func TestConsumedCapacityIsRoundedUpByThePolicy(t *testing.T) {
	q := func(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }
	within := func(maximum, step *resource.Quantity) *resourcev1.CapacityRequestPolicy {
		return &resourcev1.CapacityRequestPolicy{
			Default:    q("2"),
			ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: q("2"), Max: maximum, Step: step},
		}
	}
	list := &resourcev1.CapacityRequestPolicy{
		Default:     q("1"),
		ValidValues: []resource.Quantity{*q("1"), *q("4"), *q("8")},
	}
	for _, c := range []struct {
		policy          *resourcev1.CapacityRequestPolicy
		requested, want string // empty means that nothing is requested, or that it is rejected
	}{
		{nil, "", "10"}, {nil, "3", "3"}, {nil, "11", ""},
		{list, "", "1"}, {list, "2", "4"}, {list, "8", "8"}, {list, "9", ""},
		{within(nil, nil), "", "2"}, {within(nil, nil), "1", "2"}, {within(nil, nil), "5", "5"},
		{within(q("4"), nil), "5", ""},
		{within(nil, q("3")), "3", "5"}, {within(nil, q("3")), "5", "5"}, {within(nil, q("3")), "9", ""},
		{within(nil, q("250m")), "2100m", "2250m"},
	} {
		d := &resourcev1.Device{
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				"m": {Value: *q("10"), RequestPolicy: c.policy},
			},
		}
		var requested *resourcev1.CapacityRequirements
		if c.requested != "" {
			requested = &resourcev1.CapacityRequirements{Requests: amounts{"m": *q(c.requested)}}
		}
		got, ok := consumption(d, requested)
		if ok != (c.want != "") || ok && ptr.To(got["m"]).Cmp(*q(c.want)) != 0 {
			t.Errorf("%+v, asked for %q: %v %v, want %q", c.policy, c.requested, ok, got, c.want)
		}
	}
	if _, ok := consumption(&resourcev1.Device{},
		&resourcev1.CapacityRequirements{Requests: amounts{"m": *q("1")}}); ok {
		t.Error("a device gives what it has not")
	}
}
