package endpoints

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"
)

// inZones creates pods, one for each letter, on a node in that zone. A capital letter means that the pod is not ready,
// and a dot that the node has no zone.
func inZones(letters string) []*corev1.Pod {
	var pods []*corev1.Pod
	for i, l := range letters {
		p := pod(i+1, l != 'A' && l != 'B')
		p.Spec.NodeName = strings.ToLower(string(l))
		pods = append(pods, p)
	}
	return pods
}

func zoneOf(node string) string { return strings.Trim(node, ".") }

func hints(p Planned) string {
	var list []string
	for _, s := range append(p.Create, p.Update...) {
		for _, e := range s.Endpoints {
			text := e.TargetRef.Name + ":"
			if e.Hints != nil {
				for _, z := range e.Hints.ForZones {
					text += " zone " + z.Name
				}
				for _, n := range e.Hints.ForNodes {
					text += " node " + n.Name
				}
			}
			list = append(list, text)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func TestTrafficDistributionIsHintedAtTheReadyEndpoints(t *testing.T) {
	for _, c := range []struct{ distribution, want string }{
		{"", "web-1:, web-2:, web-3:"},
		{"PreferClose", "web-1: zone a, web-2:, web-3:"},
		{"PreferSameZone", "web-1: zone a, web-2:, web-3:"},
		{"PreferSameNode", "web-1: zone a node a, web-2:, web-3: node ."},
	} {
		s := service()
		if c.distribution != "" {
			s.Spec.TrafficDistribution = &c.distribution
		}
		if got := hints(Plan(s, inZones("aB."), nil, Topology{Zone: zoneOf})); got != c.want {
			t.Errorf("%s: got %s, want %s", c.distribution, got, c.want)
		}
	}
}

func TestHintsAreRemovedWithTheField(t *testing.T) {
	s, names := service(), 0
	near := corev1.ServiceTrafficDistributionPreferSameZone
	s.Spec.TrafficDistribution = &near
	pods := inZones("ab")
	now := apply(nil, Plan(s, pods, nil, Topology{Zone: zoneOf}), &names)
	s.Spec.TrafficDistribution = nil
	if got := Plan(s, pods, now, Topology{Zone: zoneOf}); len(got.Update) != 1 || hints(got) != "web-1:, web-2:" {
		t.Errorf("%d updates: %s", len(got.Update), hints(got))
	}
}

func TestHintsInProportionToTheZonesCPU(t *testing.T) {
	even := map[string]int64{"a": 4000, "b": 4000}
	disabled := func(reason string) string {
		return "Warning TopologyAwareHintsDisabled " + reason + ", addressType: IPv4"
	}
	const enabled = "Normal TopologyAwareHintsEnabled Topology Aware Hints has been enabled, addressType: IPv4"
	for name, c := range map[string]struct {
		pods, annotation string
		power            map[string]int64
		before           bool
		want, note       string
	}{
		"each zone has its own": {"abab", "Auto", even, false, "web-1: zone a, web-2: zone b, web-3: zone a, " +
			"web-4: zone b", enabled},
		"it is told once": {"ab", "auto", even, true, "web-1: zone a, web-2: zone b", ""},
		"a zone without gets some": {"aaaa", "Auto", even, true, "web-1: zone b, web-2: zone b, web-3: zone a, " +
			"web-4: zone a", ""},
		"a larger zone gets more": {"aaabbb", "Auto", map[string]int64{"a": 1000, "b": 2000}, true,
			"web-1: zone b, web-2: zone a, web-3: zone a, web-4: zone b, web-5: zone b, web-6: zone b", ""},
		"what is not ready is not": {"abA", "Auto", even, true, "web-1: zone a, web-2: zone b, web-3:", ""},
		"three cannot be halved": {"aab", "Auto", even, true, "web-1:, web-2:, " +
			"web-3:", disabled("Unable to allocate minimum required endpoints to each zone without exceeding " +
			"overload threshold (3 endpoints, 2 zones)")},
		"fewer than zones": {"a", "Auto", even, true, "web-1:", disabled("Insufficient number of endpoints " +
			"(1 endpoints, 2 zones)")},
		"one zone": {"aa", "Auto", map[string]int64{"a": 1}, true, "web-1:, web-2:", disabled("Insufficient Node " +
			"information: allocatable CPU or zone not specified on one or more nodes")},
		"nothing known": {"ab", "Auto", nil, false, "web-1:, web-2:", disabled("Insufficient Node " +
			"information: allocatable CPU or zone not specified on one or more nodes")},
		"an endpoint without a zone": {"ab..", "Auto", even, true, "web-1:, web-2:, web-3:, " +
			"web-4:", disabled("One or more endpoints do not have a zone specified")},
		"another mode": {"ab", "Magic", even, false, "web-1:, web-2:", ""},
		"no longer asked for": {"ab", "", even, true, "web-1:, web-2:", disabled("Topology Aware Hints has been " +
			"disabled")},
	} {
		t.Run(name, func(t *testing.T) {
			s := service()
			s.Annotations = map[string]string{corev1.AnnotationTopologyMode: c.annotation}
			topology := Topology{Zone: zoneOf, ZoneCPU: c.power}
			if c.before {
				topology.Balanced = sets.New(discoveryv1.AddressTypeIPv4)
			}
			p := Plan(s, inZones(c.pods), nil, topology)
			if got := hints(p); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			var notes []string
			for _, n := range p.Events {
				notes = append(notes, fmt.Sprint(n.Type, " ", n.Reason, " ", n.Message))
			}
			if got := strings.Join(notes, "\n"); got != c.note {
				t.Errorf("the event is %q, want %q", got, c.note)
			}
			if hinted := strings.Contains(c.want, "zone"); p.Balanced.Has(discoveryv1.AddressTypeIPv4) != hinted {
				t.Errorf("balanced: %v", p.Balanced)
			}
		})
	}
}

// The annotation takes precedence over the field, and the deprecated annotation over the newer one.
func TestTheAnnotationTakesPrecedenceOverTheField(t *testing.T) {
	s, near := service(), corev1.ServiceTrafficDistributionPreferSameNode
	s.Spec.TrafficDistribution = &near
	s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
	topology := Topology{Zone: zoneOf, ZoneCPU: map[string]int64{"a": 1, "b": 1}}
	if got := hints(Plan(s, inZones("ab"), nil, topology)); got != "web-1: zone a, web-2: zone b" {
		t.Error(got)
	}
	s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints] = "disabled"
	if got := hints(Plan(s, inZones("ab"), nil, topology)); got != "web-1: zone a node a, web-2: zone b node b" {
		t.Error(got)
	}
}

// Every zone has enough endpoints, and planning again changes nothing.
func TestBalancedHintsConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, names := service(), 0
		s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
		var now []*discoveryv1.EndpointSlice
		for range 3 {
			power := map[string]int64{}
			for _, zone := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 2, 3,
				rapid.ID).Draw(t, "zones") {
				power[zone] = int64(rapid.IntRange(1, 9).Draw(t, "cpu"))
			}
			pods := inZones(rapid.StringOfN(rapid.SampledFrom([]rune("abcA")), 0, 30, -1).Draw(t, "pods"))
			topology := Topology{Zone: zoneOf, ZoneCPU: power}
			p := Plan(s, pods, now, topology)
			now = apply(now, p, &names)
			current, ready := map[string]int{}, 0
			for _, slice := range now {
				for _, e := range slice.Endpoints {
					if *e.Conditions.Ready {
						ready++
					}
					if e.Hints != nil {
						current[e.Hints.ForZones[0].Name]++
					}
				}
			}
			if p.Balanced.Len() > 0 {
				zones, reason := zoneShares(power, ready)
				total := 0
				for _, zone := range slices.Sorted(maps.Keys(current)) {
					total += current[zone]
				}
				if reason != "" || total != ready {
					t.Fatalf("%d of %d are hinted (%s)", total, ready, reason)
				}
				for zone, should := range zones {
					// Up to two small zones may get a whole endpoint instead of a fraction, which the third zone then
					// lacks.
					if float64(current[zone]) < should-2 {
						t.Fatalf("zone %s has %d of %v", zone, current[zone], should)
					}
				}
			} else if len(current) > 0 {
				t.Fatalf("hints for %v", current)
			}
			if again := Plan(s, pods, now, topology); len(again.Create)+len(again.Update)+len(again.Delete) > 0 {
				t.Fatalf("a second plan changes: %d, %d, %d", len(again.Create), len(again.Update), len(again.Delete))
			}
		}
	})
}

func TestNodesCountedForTheirZone(t *testing.T) {
	node := func(zone, cpu string, ready corev1.ConditionStatus, label string) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelTopologyZone: zone, label: ""}},
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		return n
	}
	a, b := node("a", "2", corev1.ConditionTrue, "x"), node("b", "500m", corev1.ConditionTrue, "x")
	for name, c := range map[string]struct {
		nodes []*corev1.Node
		want  map[string]int64
	}{
		"added up": {[]*corev1.Node{a, b, a}, map[string]int64{"a": 4000, "b": 500}},
		"not ready": {[]*corev1.Node{a, node("b", "1", corev1.ConditionFalse, "x")},
			map[string]int64{"a": 2000}},
		"the control plane": {[]*corev1.Node{a,
			node("", "0", corev1.ConditionTrue, "node-role.kubernetes.io/control-plane")}, map[string]int64{"a": 2000}},
		"no zone": {[]*corev1.Node{a, node("", "1", corev1.ConditionTrue, "x")}, nil},
		"no CPU":  {[]*corev1.Node{a, node("b", "0", corev1.ConditionTrue, "x")}, nil},
	} {
		if got := zoneCPU(c.nodes); !maps.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
