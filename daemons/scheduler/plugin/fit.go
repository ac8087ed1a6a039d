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
	lacksRoom = 1 << iota
	lacksCPU
	lacksMemory
	lacksStorage
	neverEnough // the node's total is too small
)

var lackTexts = []string{"Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage"}

var lacking = func() (out [2 * neverEnough]*Refusal) {
	for bits := range out {
		r := &Refusal{Plugin: "NodeResourcesFit", Final: bits&neverEnough != 0}
		for i, text := range lackTexts {
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
	asks := &t.Pod.Requests
	var others []corev1.ResourceName
	for _, name := range slices.Sorted(maps.Keys(asks.Other)) {
		if asks.Other[name] > 0 && counted(name) && !t.Args.ignores(name) {
			others = append(others, name)
		}
	}
	if room := t.room(); room != nil {
		return func(n *cluster.Node) *Refusal {
			known := room.Of(n)
			if !known.HasLacks {
				known.HasLacks, known.Lacks = true, uint8(lacks(asks, n))
			}
			if known.Lacks == 0 {
				return nil
			}
			return lacking[known.Lacks]
		}
	}
	return func(n *cluster.Node) *Refusal {
		bits := lacks(asks, n)
		if len(others) == 0 {
			if bits == 0 {
				return nil
			}
			return lacking[bits]
		}
		var names []string
		for _, name := range others {
			if want := asks.Other[name]; want > n.Allocatable.Other[name]-n.Requested.Other[name] &&
				!backed(t, n, name) {
				names = append(names, "Insufficient "+string(name))
				if want > n.Allocatable.Other[name] {
					bits |= neverEnough
				}
			}
		}
		switch {
		case len(names) > 0:
			return &Refusal{
				"NodeResourcesFit",
				append(slices.Clone(lacking[bits].Reasons), names...),
				bits&neverEnough != 0,
			}
		case bits != 0:
			return lacking[bits]
		}
		return nil
	}
}

func lacks(asks *cluster.Resources, n *cluster.Node) int {
	bits := 0
	if int64(len(n.Pods))+1 > n.Allocatable.Pods {
		bits |= lacksRoom
	}
	if asks.MilliCPU > 0 && asks.MilliCPU > n.Allocatable.MilliCPU-n.Requested.MilliCPU {
		if bits |= lacksCPU; asks.MilliCPU > n.Allocatable.MilliCPU {
			bits |= neverEnough
		}
	}
	if asks.Memory > 0 && asks.Memory > n.Allocatable.Memory-n.Requested.Memory {
		if bits |= lacksMemory; asks.Memory > n.Allocatable.Memory {
			bits |= neverEnough
		}
	}
	if asks.Ephemeral > 0 && asks.Ephemeral > n.Allocatable.Ephemeral-n.Requested.Ephemeral {
		if bits |= lacksStorage; asks.Ephemeral > n.Allocatable.Ephemeral {
			bits |= neverEnough
		}
	}
	return bits
}

// counted reports whether a resource is countable: an extended resource or huge pages.
func counted(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func (a *Args) ignores(name corev1.ResourceName) bool {
	group, _, extended := strings.Cut(string(name), "/")
	return extended && (a.IgnoredResources[name] || a.IgnoredGroups[group])
}

// fitsNow reports whether a changed node has enough free resources, or whether a device class may provide what the pod
// lacks.
func fitsNow(t *Task, what Happened) bool {
	if what.Event == DevicesChanged {
		return classConcerned(t, what)
	}
	return what.Node == nil || lacks(&t.Pod.Requests, what.Node) == 0
}

// room returns the cached results about nodes for pods with the same requests and arguments.
func (t *Task) room() *cluster.Room { return t.Room(&t.Pod.Requests, &t.Pod.Usual, t.Args) }

// fitScore rates the remaining resources of a node by the profile's strategy. By default, more is better.
func fitScore(t *Task, _ []*cluster.Node) Rate {
	rate, room := fitRate(&t.Pod.Usual, &t.Args.Fit, devicesAs(t, t.Args.Fit.Resources)), t.room()
	if room == nil {
		return rate
	}
	return func(n *cluster.Node) int64 {
		known := room.Of(n)
		if !known.HasFit {
			known.HasFit, known.Fit = true, int8(rate(n))
		}
		return int64(known.Fit)
	}
}

func fitRate(asks *cluster.Resources, strategy *Strategy, devices amount) Rate {
	return func(n *cluster.Node) int64 {
		var total, weights int64
		for _, r := range strategy.Resources {
			if counted(r.Name) && asks.Of(r.Name) == 0 {
				continue
			}
			has, taken := n.Allocatable.Of(r.Name), n.Usual.Of(r.Name)
			if r.Name != corev1.ResourceCPU && r.Name != corev1.ResourceMemory {
				taken = n.Requested.Of(r.Name)
			}
			if has == 0 && devices != nil {
				has, taken = devices(n, r.Name)
			}
			if has == 0 {
				continue
			}
			rate := strategy.rate(taken+asks.Of(r.Name), has)
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

func (s *Strategy) rate(taken, has int64) int64 {
	switch s.Kind {
	case MostAllocated:
		return min(taken, has) * MaxScore / has
	case RequestedToCapacityRatio:
		if taken > has {
			return s.at(100)
		}
		return s.at(taken * 100 / has)
	}
	if taken > has {
		return 0
	}
	return (has - taken) * MaxScore / has
}

// at returns the score at a utilization, interpolated between the points of the shape.
func (s *Strategy) at(utilization int64) int64 {
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
	asks, resources := &t.Pod.Requests, t.Args.Balanced
	if !slices.ContainsFunc(resources, func(r Weighted) bool { return asks.Of(r.Name) != 0 }) {
		return nil
	}
	if slices.ContainsFunc(
		resources,
		func(r Weighted) bool { return counted(r.Name) },
	) { // countable resources that the pod does not request do not count
		resources = slices.DeleteFunc(
			slices.Clone(resources),
			func(r Weighted) bool { return counted(r.Name) && asks.Of(r.Name) == 0 },
		)
	}
	none, room, devices := &cluster.Resources{}, t.room(), devicesAs(t, resources)
	rate := func(n *cluster.Node) int64 {
		return MaxScore/2 + (MaxScore/2+balance(n, asks, resources, devices)-balance(n, none, resources, devices))/2
	}
	if room == nil {
		return rate
	}
	return func(n *cluster.Node) int64 {
		known := room.Of(n)
		if !known.HasBalanced {
			known.HasBalanced, known.Balanced = true, int8(rate(n))
		}
		return int64(known.Balanced)
	}
}

// balance returns a score from MaxScore/2, if one resource is fully used and another not at all, to MaxScore, if all
// are used equally.
func balance(n *cluster.Node, asks *cluster.Resources, resources []Weighted, devices amount) int64 {
	var few [4]float64 // avoids a heap allocation
	shares, sum := few[:0], 0.0
	for _, r := range resources {
		has, taken := n.Allocatable.Of(r.Name), n.Requested.Of(r.Name)
		if has == 0 && devices != nil {
			has, taken = devices(n, r.Name)
		}
		if has > 0 {
			share := min(float64(taken+asks.Of(r.Name))/float64(has), 1)
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
