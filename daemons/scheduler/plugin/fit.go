package plugin

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/scheduler/cluster"
)

// Bits for what a node lacks. Refusals for common combinations are created once.
const (
	lacksPodSlots = 1 << iota
	lacksCPU
	lacksMemory
	lacksStorage
	exceedsTotal // the node's total is too small
)

var lackReasons = []string{"Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage"}

var lackRefusals = func() (out [2 * exceedsTotal]*Refusal) {
	for bits := range out {
		r := &Refusal{Plugin: "NodeResourcesFit", IsFinal: bits&exceedsTotal != 0}
		for i, text := range lackReasons {
			if bits&(1<<i) != 0 {
				r.Reasons = append(r.Reasons, text)
			}
		}
		out[bits] = r
	}
	return out
}()

// nodeResourcesFit refuses nodes without enough free resources for the pod.
func nodeResourcesFit(t *Task) Check {
	requests := &t.Pod.Requests
	var others []corev1.ResourceName
	for _, name := range slices.Sorted(maps.Keys(requests.Other)) {
		if requests.Other[name] > 0 && isCountable(name) && !t.Args.isIgnored(name) {
			others = append(others, name)
		}
	}
	if room := t.fitCache(); room != nil {
		return func(n *cluster.Node) *Refusal {
			fit := room.FitOf(n)
			if !fit.HasLacks {
				fit.HasLacks, fit.Lacks = true, uint8(missingResources(requests, n))
			}
			if fit.Lacks == 0 {
				return nil
			}
			return lackRefusals[fit.Lacks]
		}
	}
	return func(n *cluster.Node) *Refusal {
		bits := missingResources(requests, n)
		if len(others) == 0 {
			if bits == 0 {
				return nil
			}
			return lackRefusals[bits]
		}
		var names []string
		for _, name := range others {
			if want := requests.Other[name]; want > n.Allocatable.Other[name]-n.Requested.Other[name] &&
				!isProvidedByDevices(t, n, name) {
				names = append(names, "Insufficient "+string(name))
				if want > n.Allocatable.Other[name] {
					bits |= exceedsTotal
				}
			}
		}
		switch {
		case len(names) > 0:
			return &Refusal{
				"NodeResourcesFit",
				append(slices.Clone(lackRefusals[bits].Reasons), names...),
				bits&exceedsTotal != 0,
			}
		case bits != 0:
			return lackRefusals[bits]
		}
		return nil
	}
}

func missingResources(requests *cluster.Resources, n *cluster.Node) int {
	bits := 0
	if int64(len(n.Pods))+1 > n.Allocatable.Pods {
		bits |= lacksPodSlots
	}
	if requests.MilliCPU > 0 && requests.MilliCPU > n.Allocatable.MilliCPU-n.Requested.MilliCPU {
		if bits |= lacksCPU; requests.MilliCPU > n.Allocatable.MilliCPU {
			bits |= exceedsTotal
		}
	}
	if requests.Memory > 0 && requests.Memory > n.Allocatable.Memory-n.Requested.Memory {
		if bits |= lacksMemory; requests.Memory > n.Allocatable.Memory {
			bits |= exceedsTotal
		}
	}
	if requests.Ephemeral > 0 && requests.Ephemeral > n.Allocatable.Ephemeral-n.Requested.Ephemeral {
		if bits |= lacksStorage; requests.Ephemeral > n.Allocatable.Ephemeral {
			bits |= exceedsTotal
		}
	}
	return bits
}

// isCountable reports whether a resource is countable: an extended resource or huge pages.
func isCountable(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func (a *Args) isIgnored(name corev1.ResourceName) bool {
	group, _, extended := strings.Cut(string(name), "/")
	return extended && (a.IgnoredResources[name] || a.IgnoredGroups[group])
}

// fitHint reports whether a changed node has enough free resources, or whether a device class may provide what the pod
// lacks.
func fitHint(t *Task, what ClusterEvent) bool {
	if what.EventKind == DevicesChanged {
		return isRequestedFromClass(t, what)
	}
	return what.Node == nil || missingResources(&t.Pod.Requests, what.Node) == 0
}

// fitCache returns the cached results about nodes for pods with the same requests and arguments.
func (t *Task) fitCache() *cluster.FitCache {
	return t.FitCache(&t.Pod.Requests, &t.Pod.RequestsWithDefaults, t.Args)
}

// fitScore rates the remaining resources of a node by the profile's strategy. By default, more is better.
func fitScore(t *Task, _ []*cluster.Node) Rate {
	rate, room := fitRate(&t.Pod.RequestsWithDefaults, &t.Args.Fit, deviceAmounts(t, t.Args.Fit.Resources)),
		t.fitCache()
	if room == nil {
		return rate
	}
	return func(n *cluster.Node) int64 {
		fit := room.FitOf(n)
		if !fit.HasFit {
			fit.HasFit, fit.Fit = true, int8(rate(n))
		}
		return int64(fit.Fit)
	}
}

func fitRate(requests *cluster.Resources, strategy *Strategy, devices resourceAmount) Rate {
	return func(n *cluster.Node) int64 {
		var total, weights int64
		for _, r := range strategy.Resources {
			if isCountable(r.Name) && requests.Amount(r.Name) == 0 {
				continue
			}
			capacity, taken := n.Allocatable.Amount(r.Name), n.RequestedWithDefaults.Amount(r.Name)
			if r.Name != corev1.ResourceCPU && r.Name != corev1.ResourceMemory {
				taken = n.Requested.Amount(r.Name)
			}
			if capacity == 0 && devices != nil {
				capacity, taken = devices(n, r.Name)
			}
			if capacity == 0 {
				continue
			}
			rate := strategy.rate(taken+requests.Amount(r.Name), capacity)
			if rate == 0 && strategy.Kind == RequestedToCapacityRatio {
				continue // it does not count
			}
			total += rate * r.Weight
			weights += r.Weight
		}
		if weights == 0 {
			return 0
		}
		if strategy.Kind == RequestedToCapacityRatio {
			return int64(math.Round(float64(total) / float64(weights)))
		}
		return total / weights
	}
}

func (s *Strategy) rate(taken, capacity int64) int64 {
	switch s.Kind {
	case MostAllocated:
		return min(taken, capacity) * MaxScore / capacity
	case RequestedToCapacityRatio:
		if taken > capacity {
			return s.scoreAt(100)
		}
		return s.scoreAt(taken * 100 / capacity)
	}
	if taken > capacity {
		return 0
	}
	return (capacity - taken) * MaxScore / capacity
}

// scoreAt returns the score at a utilization, interpolated between the points of the shape.
func (s *Strategy) scoreAt(utilization int64) int64 {
	for i, p := range s.Shape {
		if utilization > p.Utilization {
			continue
		}
		if i == 0 {
			return p.Score
		}
		from := s.Shape[i-1]
		return from.Score + (p.Score-from.Score)*(utilization-from.Utilization)/(p.Utilization-from.Utilization)
	}
	return s.Shape[len(s.Shape)-1].Score
}

// balancedScore prefers nodes on which the pod makes the used shares of resources more equal. Pods that request none of
// the resources are not ranked.
func balancedScore(t *Task, _ []*cluster.Node) Rate {
	requests, resources := &t.Pod.Requests, t.Args.BalancedResources
	if !slices.ContainsFunc(resources, func(r Weighted) bool { return requests.Amount(r.Name) != 0 }) {
		return nil
	}
	if slices.ContainsFunc(
		resources,
		func(r Weighted) bool { return isCountable(r.Name) },
	) { // countable resources that the pod does not request do not count
		resources = slices.DeleteFunc(slices.Clone(resources),
			func(r Weighted) bool { return isCountable(r.Name) && requests.Amount(r.Name) == 0 })
	}
	none, room, devices := &cluster.Resources{}, t.fitCache(), deviceAmounts(t, resources)
	rate := func(n *cluster.Node) int64 {
		return MaxScore/2 + (MaxScore/2+balance(n, requests, resources, devices)-balance(n, none, resources, devices))/2
	}
	if room == nil {
		return rate
	}
	return func(n *cluster.Node) int64 {
		fit := room.FitOf(n)
		if !fit.HasBalanced {
			fit.HasBalanced, fit.Balanced = true, int8(rate(n))
		}
		return int64(fit.Balanced)
	}
}

// balance returns a score from MaxScore/2, if one resource is fully used and another not at all, to MaxScore, if all
// are used equally.
func balance(n *cluster.Node, requests *cluster.Resources, resources []Weighted, devices resourceAmount) int64 {
	var few [4]float64 // avoids a heap allocation
	shares, sum := few[:0], 0.0
	for _, r := range resources {
		capacity, taken := n.Allocatable.Amount(r.Name), n.Requested.Amount(r.Name)
		if capacity == 0 && devices != nil {
			capacity, taken = devices(n, r.Name)
		}
		if capacity > 0 {
			share := min(float64(taken+requests.Amount(r.Name))/float64(capacity), 1)
			shares, sum = append(shares, share), sum+share
		}
	}
	deviation := 0.0
	switch len(shares) {
	case 0, 1:
	case 2:
		deviation = math.Abs((shares[0] - shares[1]) / 2)
	default:
		mean := sum / float64(len(shares))
		for _, s := range shares {
			deviation += (s - mean) * (s - mean)
		}
		deviation = math.Sqrt(deviation / float64(len(shares)))
	}
	return int64((1 - deviation) * MaxScore)
}
