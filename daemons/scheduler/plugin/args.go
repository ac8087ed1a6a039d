package plugin

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Args are a profile's arguments of plugins.
type Args struct {
	Fit                  Strategy
	IgnoredResources     map[corev1.ResourceName]bool
	IgnoredGroups        map[string]bool // by what stands before the slash
	Balanced             []Weighted
	AddedAffinity        *nodeaffinity.NodeSelector
	AddedPreferred       *nodeaffinity.PreferredSchedulingTerms
	HardAffinityWeight   int64
	IgnoreTheirPreferred bool    // of pods on nodes, for those without affinity of their own
	VolumeShape          []Point // by the share of volumes and of the room for them that claims take
	// DeviceTimeout bounds the search for devices on one node; zero bounds it by nothing. Without one it is bounded by
	// tries.
	DeviceTimeout *time.Duration
	// DefaultConstraints are for pods without constraints, by their siblings. Nodes that lack a key of theirs are
	// ranked all the same when they are Kubernetes' own.
	DefaultConstraints []DefaultConstraint
	OwnConstraints     bool // they are not
}

// DefaultConstraint is a constraint without a selector.
type DefaultConstraint struct {
	Key                    string
	MaxSkew, MinDomains    int
	Required               bool
	HonorNodes, HonorTaint bool
}

// Weighted is a resource and its weight.
type Weighted struct {
	Name   corev1.ResourceName
	Weight int64
}

// Strategy says which nodes are the better ones by what is left on them.
type Strategy struct {
	Kind      StrategyKind
	Resources []Weighted
	Shape     []Point // of RequestedToCapacityRatio, by growing utilization
}

// StrategyKind is a way to rate what is taken of a node.
type StrategyKind int

// The ways there are.
const (
	LeastAllocated StrategyKind = iota
	MostAllocated
	RequestedToCapacityRatio
)

// Point is a score, of MaxScore, at a utilization in percent.
type Point struct{ Utilization, Score int64 }

// DefaultArgs are the documented defaults.
func DefaultArgs() *Args {
	both := []Weighted{{corev1.ResourceCPU, 1}, {corev1.ResourceMemory, 1}}
	return &Args{
		Fit: Strategy{Resources: both}, Balanced: both, HardAffinityWeight: 1,
		VolumeShape: []Point{{0, MaxScore}, {100, 0}},
		DefaultConstraints: []DefaultConstraint{
			{Key: corev1.LabelHostname, MaxSkew: 3, MinDomains: 1, HonorNodes: true},
			{Key: corev1.LabelTopologyZone, MaxSkew: 5, MinDomains: 1, HonorNodes: true},
		},
	}
}
