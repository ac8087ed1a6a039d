package plugin

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Args are a profile's plugin arguments.
type Args struct {
	Fit                     Strategy
	IgnoredResources        map[corev1.ResourceName]bool
	IgnoredGroups           map[string]bool // by the part before the slash
	BalancedResources       []Weighted
	AddedAffinity           *nodeaffinity.NodeSelector
	AddedPreferred          *nodeaffinity.PreferredSchedulingTerms
	HardAffinityWeight      int64
	IgnoreExistingPreferred bool    // ignore preferences of pods on nodes for pods without affinity terms of their own
	VolumeShape             []Point // by utilization: the share of volumes, or of capacity, that claims take
	// DeviceTimeout bounds the search for devices on one node. Zero means no limit. If it is nil, the number of tries
	// is limited instead.
	DeviceTimeout *time.Duration
	// DefaultConstraints apply to pods without constraints, and count sibling pods. Nodes that lack one of the keys are
	// still ranked if the constraints are Kubernetes' own defaults.
	DefaultConstraints       []DefaultConstraint
	HasConfiguredConstraints bool // they were configured, and are not Kubernetes' own defaults
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

// Strategy defines how the remaining resources of a node determine its score.
type Strategy struct {
	Kind      StrategyKind
	Resources []Weighted
	Shape     []Point // of RequestedToCapacityRatio, by increasing utilization
}

// StrategyKind is a way to rate the used resources of a node.
type StrategyKind int

// Kinds of strategies.
const (
	LeastAllocated StrategyKind = iota
	MostAllocated
	RequestedToCapacityRatio
)

// Point is a score, up to MaxScore, at a utilization in percent.
type Point struct{ Utilization, Score int64 }

// DefaultArgs returns the documented defaults.
func DefaultArgs() *Args {
	both := []Weighted{{corev1.ResourceCPU, 1}, {corev1.ResourceMemory, 1}}
	return &Args{
		Fit: Strategy{Resources: both}, BalancedResources: both, HardAffinityWeight: 1,
		VolumeShape: []Point{{0, MaxScore}, {100, 0}},
		DefaultConstraints: []DefaultConstraint{
			{Key: corev1.LabelHostname, MaxSkew: 3, MinDomains: 1, HonorNodes: true},
			{Key: corev1.LabelTopologyZone, MaxSkew: 5, MinDomains: 1, HonorNodes: true},
		},
	}
}
