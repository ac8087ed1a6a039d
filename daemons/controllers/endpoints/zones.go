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

// maxOverload is the maximum fraction by which an endpoint may exceed its share of traffic. Beyond it, hints do more
// harm than good.
const maxOverload = 0.2

// balanceZones assigns endpoints to each zone in proportion to the zone's CPU, its own first, and sets the hints. If an
// endpoint would be overloaded or too little is known, it sets no hints and returns the reason.
func balanceZones(wanted, existing []*discoveryv1.EndpointSlice, power map[string]int64) (reason string) {
	ready := readyEndpoints(wanted)
	zones, reason := zoneShares(power, len(ready))
	if reason != "" {
		return reason
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
	giving, receiving := zoneTransfers(zones, given)
	lend := func(e *discoveryv1.Endpoint, to string) {
		if giving[*e.Zone] > 0 && receiving[to] > 0 {
			giving[*e.Zone]--
			receiving[to]--
			e.Hints.ForZones[0].Name = to
		}
	}
	// Endpoints that are already lent to another zone stay lent to it. Few hints change then, and planning twice gives
	// the same result.
	now := hintedZones(existing)
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

// hintedZones returns the zones of the present hints, by the pods' UIDs.
func hintedZones(existing []*discoveryv1.EndpointSlice) map[types.UID]string {
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

// zoneShares returns how many endpoints each zone should have, not rounded, or the reason why that is not possible.
func zoneShares(power map[string]int64, endpoints int) (zones map[string]float64, reason string) {
	total, smallest := int64(0), 0
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
		minimum := math.Ceil(part * (1 / (1 + maxOverload)))
		smallest += int(minimum)
		zones[zone] = max(part, minimum)
	}
	if smallest > endpoints {
		return nil, fmt.Sprintf("Unable to allocate minimum required endpoints to each zone without exceeding "+
			"overload threshold (%d endpoints, %d zones)", endpoints, len(power))
	}
	return zones, ""
}

// zoneTransfers returns how many endpoints each zone gives to others and how many each receives. It moves whole
// endpoints as long as a move brings both zones closer to their share.
func zoneTransfers(zones map[string]float64, given map[string]int) (giving, receiving map[string]int) {
	surplus, want := map[string]float64{}, map[string]float64{}
	for zone, count := range given {
		if _, ok := zones[zone]; !ok {
			surplus[zone] = float64(count) // a zone without CPU does not use them
		}
	}
	for zone, should := range zones {
		switch current := float64(given[zone]); {
		case current > should:
			surplus[zone] = current - should
		case current < should:
			want[zone] = should - current
		}
	}
	giving, receiving = map[string]int{}, map[string]int{}
	for {
		from, to := largestKey(surplus), largestKey(want)
		if surplus[from] < 0.5 || want[to] < 0.5 || surplus[from] < 1 && want[to] < 1 {
			return giving, receiving
		}
		giving[from]++
		receiving[to]++
		surplus[from]--
		want[to]--
	}
}

// largestKey returns the key with the greatest value. Of equal values, it returns the first key by name.
func largestKey(of map[string]float64) (key string) {
	for _, k := range slices.Sorted(maps.Keys(of)) {
		if key == "" || of[k] > of[key] {
			key = k
		}
	}
	return key
}

// nodeCPU is the contribution of one node. A node that is not ready, or that belongs to the control plane, does not
// count: it runs no workloads.
type nodeCPU struct {
	isCounted bool
	zone      string
	cpu       int64
}

func cpuOf(node *corev1.Node) nodeCPU {
	if node == nil {
		return nodeCPU{}
	}
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if _, ok := node.Labels[label]; ok {
			return nodeCPU{}
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nodeCPU{true, node.Labels[corev1.LabelTopologyZone], node.Status.Allocatable.Cpu().MilliValue()}
		}
	}
	return nodeCPU{}
}

// zoneCPU adds up the zones' CPU. It returns nil if a node that counts has no zone or no CPU.
func zoneCPU(nodes []*corev1.Node) map[string]int64 {
	zones := map[string]int64{}
	for _, node := range nodes {
		p := cpuOf(node)
		if !p.isCounted {
			continue
		}
		if p.zone == "" || p.cpu == 0 {
			return nil
		}
		zones[p.zone] += p.cpu
	}
	return zones
}
