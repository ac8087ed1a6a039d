package endpoints

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// overload is by how much more than its part an endpoint may be asked before hints do more harm than good.
const overload = 0.2

// balance gives each zone endpoints in proportion to its CPU, its own first, and sets hints that say so. Where it
// cannot, because some would be overloaded or too little is known, there are no hints and it returns why.
func balance(wanted, existing []*discoveryv1.EndpointSlice, power map[string]int64) (why string) {
	ready := readyEndpoints(wanted)
	zones, why := allot(power, len(ready))
	if why != "" {
		return why
	}
	given := map[string]int{}
	for _, e := range ready {
		if e.Zone == nil {
			return "One or more endpoints do not have a zone specified"
		}
		given[*e.Zone]++
	}
	for _, e := range ready {
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *e.Zone}}}
	}
	giving, receiving := shift(zones, given)
	lend := func(e *discoveryv1.Endpoint, to string) {
		if giving[*e.Zone] > 0 && receiving[to] > 0 {
			giving[*e.Zone]--
			receiving[to]--
			e.Hints.ForZones[0].Name = to
		}
	}
	// Endpoints that another zone has already stay with it, so that little changes and what is planned twice is the
	// same.
	now := hintedFor(existing)
	for _, e := range ready {
		lend(e, now[e.TargetRef.UID])
	}
	for _, e := range ready {
		for _, to := range slices.Sorted(maps.Keys(receiving)) {
			if e.Hints.ForZones[0].Name == *e.Zone {
				lend(e, to)
			}
		}
	}
	return ""
}

// hintedFor are the zones that endpoints are hinted for now, by the pods' UIDs.
func hintedFor(existing []*discoveryv1.EndpointSlice) map[types.UID]string {
	zones := map[types.UID]string{}
	for _, s := range existing {
		for _, e := range s.Endpoints {
			if e.TargetRef != nil && e.Hints != nil && len(e.Hints.ForZones) == 1 {
				zones[e.TargetRef.UID] = e.Hints.ForZones[0].Name
			}
		}
	}
	return zones
}

// allot returns how many endpoints each zone should have, not rounded, or why that cannot be done.
func allot(power map[string]int64, endpoints int) (zones map[string]float64, why string) {
	total, least := int64(0), 0
	for _, cpu := range power {
		total += cpu
	}
	if len(power) < 2 || total == 0 {
		return nil, "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
	}
	if len(power) > endpoints {
		return nil, fmt.Sprintf("Insufficient number of endpoints (%d endpoints, %d zones)", endpoints, len(power))
	}
	zones = map[string]float64{}
	for zone, cpu := range power {
		part := float64(cpu) / float64(total) * float64(endpoints)
		minimum := math.Ceil(part * (1 / (1 + overload)))
		least += int(minimum)
		zones[zone] = max(part, minimum)
	}
	if least > endpoints {
		return nil, fmt.Sprintf(
			"Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (%d "+
				"endpoints, %d zones)",
			endpoints,
			len(power),
		)
	}
	return zones, ""
}

// shift returns how many endpoints each zone lends to others, and how many each gets, in whole numbers: as long as it
// brings both nearer to what they should have.
func shift(zones map[string]float64, given map[string]int) (giving, receiving map[string]int) {
	surplus, want := map[string]float64{}, map[string]float64{}
	for zone, has := range given {
		if _, ok := zones[zone]; !ok {
			surplus[zone] = float64(has) // nobody there would use them
		}
	}
	for zone, should := range zones {
		switch has := float64(given[zone]); {
		case has > should:
			surplus[zone] = has - should
		case has < should:
			want[zone] = should - has
		}
	}
	giving, receiving = map[string]int{}, map[string]int{}
	for {
		from, to := most(surplus), most(want)
		if surplus[from] < 0.5 || want[to] < 0.5 || surplus[from] < 1 && want[to] < 1 {
			return giving, receiving
		}
		giving[from]++
		receiving[to]++
		surplus[from]--
		want[to]--
	}
}

// most is the key of the greatest value, the first by name of several.
func most(of map[string]float64) (key string) {
	for _, k := range slices.Sorted(maps.Keys(of)) {
		if key == "" || of[k] > of[key] {
			key = k
		}
	}
	return key
}

// power is what one node counts for: nothing when it is not ready or is of the control plane, which runs no workloads.
type power struct {
	counts bool
	zone   string
	cpu    int64
}

func powerOf(node *corev1.Node) power {
	if node == nil {
		return power{}
	}
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if _, ok := node.Labels[label]; ok {
			return power{}
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return power{true, node.Labels[corev1.LabelTopologyZone], node.Status.Allocatable.Cpu().MilliValue()}
		}
	}
	return power{}
}

// zonePower adds up the zones' CPU. It returns nil when a node that counts does not say its zone or CPU.
func zonePower(nodes []*corev1.Node) map[string]int64 {
	zones := map[string]int64{}
	for _, node := range nodes {
		p := powerOf(node)
		if !p.counts {
			continue
		}
		if p.zone == "" || p.cpu == 0 {
			return nil
		}
		zones[p.zone] += p.cpu
	}
	return zones
}
