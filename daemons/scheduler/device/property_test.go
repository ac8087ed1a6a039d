package device

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"clusterctl/daemons/kinds/expression"
)

// modelDevice is a device in a small model, and wish is a request for devices. Both are plain values.
type modelDevice struct {
	name                                     string
	color, size                              int
	isTainted, shareable, reachable, isTaken bool
	slots                                    int // draw on the pool's counter
}

type modelRequest struct {
	name                 string
	color                int // 0 means any
	count                int
	all, admin, tolerant bool // calm means that it tolerates taints
	capacity             int  // 0 means none
}

type modelWorld struct {
	devices []modelDevice
	slots   int
	claims  []modelClaim
}

type modelClaim struct {
	requests       [][]modelRequest
	sameColor      bool // all have the same color
	distinctColors bool // all have different colors
}

// modelChoice is a wish with its devices.
type modelChoice struct {
	claim   int
	request modelRequest
	devices []int
}

func drawModelWorld(t *rapid.T) modelWorld {
	b := rapid.Bool()
	w := modelWorld{slots: rapid.IntRange(0, 4).Draw(t, "slots")}
	for i := range rapid.IntRange(0, 4).Draw(t, "devices") {
		w.devices = append(w.devices, modelDevice{
			name: fmt.Sprintf("d%d",
				i), color: rapid.IntRange(1, 2).Draw(t, "color"), size: rapid.IntRange(1, 3).Draw(t, "size"),
			isTainted: rapid.IntRange(0, 4).Draw(t, "taint") == 0,
			shareable: rapid.IntRange(0, 2).Draw(t, "multi") == 0,
			reachable: rapid.IntRange(0, 4).
				Draw(t, "here") >
				0, isTaken: rapid.IntRange(0, 3).Draw(t, "taken") == 0, slots: rapid.IntRange(0, 2).Draw(t, "takes"),
		})
	}
	for range rapid.IntRange(1, 2).Draw(t, "claims") {
		var c modelClaim
		for i := range rapid.IntRange(1, 2).Draw(t, "requests") {
			name := fmt.Sprintf("r%d", i)
			one := func(name string) modelRequest {
				return modelRequest{
					name: name, color: rapid.IntRange(0, 2).Draw(t, "wants"),
					count: rapid.IntRange(1, 2).Draw(t, "count"),
					all: rapid.IntRange(0, 4).
						Draw(t, "all") ==
						0, tolerant: b.Draw(t, "calm"), capacity: rapid.IntRange(0, 3).Draw(t, "capacity"),
				}
			}
			if b.Draw(t, "exactly") {
				o := one(name)
				o.admin = rapid.IntRange(0, 3).Draw(t, "admin") == 0
				c.requests = append(c.requests, []modelRequest{o})
			} else {
				c.requests = append(c.requests, []modelRequest{one(name + "/a"), one(name + "/b")})
			}
		}
		c.sameColor = rapid.IntRange(0, 3).Draw(t, "alike") == 0
		c.distinctColors = rapid.IntRange(0, 3).Draw(t, "different") == 0
		w.claims = append(w.claims, c)
	}
	return w
}

// fits reports whether a thing matches a wish, regardless of other choices.
func (w modelWorld) fits(x modelDevice, o modelRequest) bool {
	return x.reachable && (o.color == 0 || o.color == x.color) && o.capacity <= x.size
}

func modelConsumption(x modelDevice, o modelRequest) int {
	if o.capacity == 0 {
		return x.size
	}
	return o.capacity
}

// isValid reports whether choices are valid together.
func (w modelWorld) isValid(choices []modelChoice) bool {
	whole, shared, drawn := map[int]int{}, map[int]int{}, map[int]bool{}
	for i, x := range w.devices {
		if x.isTaken {
			whole[i], drawn[i] = 1, true
		}
	}
	byClaim := map[int][]int{}
	admins := map[int][]int{}
	for _, c := range choices {
		for _, i := range c.devices {
			x := w.devices[i]
			if !w.fits(x, c.request) || x.isTainted && !c.request.tolerant {
				return false
			}
			byClaim[c.claim] = append(byClaim[c.claim], i)
			switch {
			case c.request.admin:
				admins[c.claim] = append(admins[c.claim], i)
			case x.shareable:
				shared[i] += modelConsumption(x, c.request)
				drawn[i] = true
			default:
				whole[i]++
				drawn[i] = true
			}
		}
	}
	slots := 0
	for i, x := range w.devices {
		if whole[i] > 1 || whole[i] > 0 && shared[i] > 0 || shared[i] > x.size {
			return false
		}
		if drawn[i] {
			slots += x.slots
		}
	}
	if slots > w.slots && slices.ContainsFunc(choices, func(c modelChoice) bool {
		return !c.request.admin && slices.ContainsFunc(c.devices, func(i int) bool { return w.devices[i].slots > 0 })
	}) {
		return false
	}
	for claim, list := range byClaim {
		for _, i := range admins[claim] {
			n := 0
			for _, j := range list {
				if i == j {
					n++
				}
			}
			if n > 1 {
				return false
			}
		}
		colors := map[int]int{}
		for _, i := range list {
			colors[w.devices[i].color]++
		}
		if w.claims[claim].sameColor && len(colors) > 1 || w.claims[claim].distinctColors && len(colors) < len(list) {
			return false
		}
	}
	return true
}

// isPossible reports whether there is a valid choice, by trying all combinations.
func (w modelWorld) isPossible(claim, request int, made []modelChoice) bool {
	if claim == len(w.claims) {
		return w.isValid(made)
	}
	if request == len(w.claims[claim].requests) {
		return w.isPossible(claim+1, 0, made)
	}
	for _, o := range w.claims[claim].requests[request] {
		var sets [][]int
		if o.all {
			var all []int
			for i, x := range w.devices {
				if w.fits(x, o) {
					all = append(all, i)
				}
			}
			if len(all) > 0 {
				sets = append(sets, all)
			}
		} else {
			for i := range w.devices {
				if o.count == 1 {
					sets = append(sets, []int{i})
					continue
				}
				for j := range w.devices {
					sets = append(sets, []int{i, j})
				}
			}
		}
		for _, set := range sets {
			if w.isPossible(claim, request+1, append(made[:len(made):len(made)], modelChoice{claim, o, set})) {
				return true
			}
		}
	}
	return false
}

// objects converts the model to API objects.
func (w modelWorld) objects() (*Catalog, *Use, []*resourcev1.ResourceClaim) {
	c, use := NewCatalog(), NewUse()
	pool := resourcev1.ResourcePool{Name: "p", ResourceSliceCount: 2}
	c.SetSlice(
		&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "counters"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "x.io", Pool: pool, AllNodes: ptr.To(true),
			SharedCounters: []resourcev1.CounterSet{
				{
					Name: "set",
					Counters: map[string]resourcev1.Counter{
						"slots": {Value: *resource.NewQuantity(int64(w.slots), "")},
					},
				},
			},
		}},
	)
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "devices"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "x.io", Pool: pool, PerDeviceNodeSelection: ptr.To(true)}}
	w.addDevices(s, use)
	c.SetSlice(s)
	return c, use, w.claimObjects()
}

// claimObjects converts the claims to API objects.
func (w modelWorld) claimObjects() (claims []*resourcev1.ResourceClaim) {
	for i, want := range w.claims {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprintf("c%d", i)}}
		for j, options := range want.requests {
			r := resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", j)}
			for k, o := range options {
				e := resourcev1.ExactDeviceRequest{
					DeviceClassName: "class",
					AllocationMode:  resourcev1.DeviceAllocationModeExactCount,
					Count:           int64(o.count),
				}
				if o.all {
					e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeAll, 0
				}
				if o.color > 0 {
					e.Selectors = []resourcev1.DeviceSelector{
						{
							CEL: &resourcev1.CELDeviceSelector{
								Expression: fmt.Sprintf(`device.attributes["x.io"].color == %d`, o.color),
							},
						},
					}
				}
				if o.tolerant {
					e.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
				}
				if o.capacity > 0 {
					e.Capacity = &resourcev1.CapacityRequirements{
						Requests: amounts{"size": *resource.NewQuantity(int64(o.capacity), "")},
					}
				}
				if len(options) == 1 {
					if o.admin {
						e.AdminAccess = ptr.To(true)
					}
					r.Exactly = &e
				} else {
					r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{
						Name: string(rune('a' + k)), DeviceClassName: e.DeviceClassName, Selectors: e.Selectors,
						AllocationMode: e.AllocationMode, Count: e.Count,
						Tolerations: e.Tolerations, Capacity: e.Capacity,
					})
				}
			}
			claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, r)
		}
		name := resourcev1.FullyQualifiedName("x.io/color")
		if want.sameColor {
			claim.Spec.Devices.Constraints = append(claim.Spec.Devices.Constraints,
				resourcev1.DeviceConstraint{MatchAttribute: &name})
		}
		if want.distinctColors {
			claim.Spec.Devices.Constraints = append(claim.Spec.Devices.Constraints,
				resourcev1.DeviceConstraint{DistinctAttribute: &name})
		}
		claims = append(claims, claim)
	}
	return claims
}

// addDevices adds the devices to a slice, and those that are taken to the use.
func (w modelWorld) addDevices(s *resourcev1.ResourceSlice, use *Use) {
	for _, x := range w.devices {
		d := resourcev1.Device{
			Name: x.name,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"color": {IntValue: ptr.To(int64(x.color))},
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				"size": {Value: *resource.NewQuantity(int64(x.size), "")},
			},
			NodeName: ptr.To("there"), AllowMultipleAllocations: ptr.To(x.shareable),
		}
		if x.reachable {
			d.NodeName = ptr.To("here")
		}
		if x.isTainted {
			d.Taints = []resourcev1.DeviceTaint{{Key: "bad", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		}
		if x.slots > 0 {
			d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{
				{
					CounterSet: "set",
					Counters: map[string]resourcev1.Counter{
						"slots": {Value: *resource.NewQuantity(int64(x.slots), "")},
					},
				},
			}
		}
		if x.isTaken {
			use.Add(
				&resourcev1.AllocationResult{
					Devices: resourcev1.DeviceAllocationResult{
						Results: []resourcev1.DeviceRequestAllocationResult{
							{Driver: "x.io", Pool: "p", Device: x.name},
						},
					},
				},
			)
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
}

var compiledExpressions = map[string]*expression.Device{}

func compile(text string) (*expression.Device, error) {
	if compiledExpressions[text] == nil {
		d, err := expression.CompileDevice(text)
		if err != nil {
			return nil, err
		}
		compiledExpressions[text] = d
	}
	return compiledExpressions[text], nil
}

func oneClass(string) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "x.io"`}},
		}}}
}

func TestClaimsGetDevicesWhereverAnyChoiceIsRight(t *testing.T) {
	fit, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawModelWorld(t)
		c, use, claims := w.objects()
		plan, err := NewPlan(claims, oneClass, compile)
		if err != nil {
			t.Fatal(err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}
		got, err := plan.AllocateOn(node, c, use)
		if possible := w.isPossible(0, 0, nil); possible != (err == nil) {
			t.Fatalf("possible: %v, but %v\n%+v", possible, err, w)
		}
		if err != nil {
			refused++
			return
		}
		fit++
		var made []modelChoice
		for i, a := range got {
			made = append(made, choicesOf(t, w, i, a)...)
		}
		if !w.isValid(made) {
			t.Fatalf("%+v is wrong in %+v", made, w)
		}
		again, err := plan.AllocateOn(node, c, use)
		if err != nil || fmt.Sprint(again[0].Result) != fmt.Sprint(got[0].Result) {
			t.Fatalf("the second time %v: %v, at first %v", err, again, got)
		}
	})
	if fit == 0 || refused == 0 {
		t.Errorf("%d worlds had room, %d had none", fit, refused)
	}
}

// choicesOf converts a claim's allocation, and fails unless every request has the wanted number of devices.
func choicesOf(t *rapid.T, w modelWorld, claim int, a *Allocation) []modelChoice {
	got := map[string][]int{}
	for _, r := range a.Result.Devices.Results {
		got[r.Request] = append(got[r.Request], slices.IndexFunc(w.devices,
			func(x modelDevice) bool { return x.name == r.Device }))
	}
	var out []modelChoice
	for _, options := range w.claims[claim].requests {
		n := 0
		for _, o := range options {
			list, ok := got[o.name]
			if !ok {
				continue
			}
			n++
			if !o.all && len(list) != o.count {
				t.Fatalf("request %s has %d devices: %+v", o.name, len(list), a.Result)
			}
			out = append(out, modelChoice{claim, o, list})
		}
		if n != 1 {
			t.Fatalf("%d options of a request: %+v", n, a.Result)
		}
	}
	return out
}
