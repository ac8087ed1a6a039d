// Package plugin contains the scheduler's criteria: filters, which report whether a node fits and why not, and scores,
// which rate nodes that fit. They only read a cluster.Cluster. They make no requests and change nothing. Package
// scheduler decides when to run them and acts on the results.
package plugin

import (
	"clusterctl/daemons/scheduler/cluster"
)

// All lists the plugins in the order in which filters run. The first filter that refuses a node provides the reason.
var All = []Plugin{
	{Name: "NodeUnschedulable", Filter: nodeUnschedulable, NodeOnly: true, Wakes: NodeChanged},
	{Name: "NodeName", Filter: nodeName, NodeOnly: true, Wakes: NodeChanged},
	{
		Name:      "TaintToleration",
		Filter:    taintToleration,
		NodeOnly:  true,
		Score:     fewestTaints,
		Normalize: reversed,
		Weight:    3,
		Wakes:     NodeChanged,
	},
	{
		Name:       "NodeAffinity",
		Everywhere: termsConflict,
		Filter:     nodeAffinity,
		NodeOnly:   true,
		Score:      preferredNodes,
		Normalize:  highest,
		Weight:     2,
		Wakes:      NodeChanged,
	},
	{Name: "NodePorts", Filter: nodePorts, Wakes: NodeChanged | PodGone, Hint: portsConcerned},
	{
		Name:   "NodeResourcesFit",
		Filter: nodeResourcesFit,
		Score:  fitScore,
		Weight: 1,
		Wakes:  NodeChanged | PodGone | DevicesChanged,
		Hint:   fitsNow,
	},
	{
		Name:       "VolumeRestrictions",
		Everywhere: claimMissing,
		Filter:     volumeRestrictions,
		Wakes:      NodeChanged | DomainsChanged | PodGone | StorageChanged,
		Hint:       disksConcerned,
	},
	{
		Name:   "NodeVolumeLimits",
		Filter: volumeLimits,
		Wakes:  NodeChanged | PodGone | StorageChanged,
		Hint:   limitsConcerned,
	},
	{
		Name:       "VolumeBinding",
		Everywhere: claimUnusable,
		Filter:     volumeBinding,
		Score:      volumeScore,
		Weight:     1,
		Wakes:      NodeChanged | StorageChanged,
		Hint:       bindingConcerned,
	},
	{
		Name:       "VolumeZone",
		Everywhere: volumeMissing,
		Filter:     volumeZone,
		Wakes:      NodeChanged | StorageChanged,
		Hint:       zoneConcerned,
	},
	{
		Name:      "PodTopologySpread",
		Filter:    topologySpread,
		Score:     spreadScore,
		Normalize: spreadNormalize,
		Weight:    2,
		Wakes:     NodeChanged | DomainsChanged | PodGone | PodPlaced,
		Hint:      spreadConcerned,
	},
	{
		Name:      "InterPodAffinity",
		Filter:    podAffinity,
		Score:     affinityScore,
		Normalize: ranged,
		Weight:    2,
		Wakes:     NodeChanged | DomainsChanged | PodGone | PodPlaced,
		Hint:      affinityConcerned,
	},
	{
		Name:       "DynamicResources",
		Everywhere: devicesUnusable,
		Filter:     devicesFit,
		Score:      devicesScore,
		Normalize:  highest,
		Weight:     2,
		Wakes:      NodeChanged | DevicesChanged,
		Hint:       devicesConcerned,
	},
	{Name: "NodeResourcesBalancedAllocation", Score: balancedScore, Weight: 1},
	{Name: "ImageLocality", Score: imageScore, Weight: 1},
	{Name: "NodeDeclaredFeatures", Filter: declaredFeatures, Wakes: NodeChanged, Hint: featuresConcerned},
}

// Plugin is a filter, a score, or both. A plugin that does not apply to a pod returns nil for it.
type Plugin struct {
	Name string
	// Everywhere refuses a pod on all nodes, before any node is checked.
	Everywhere func(t *Task) *Refusal
	// Filter returns the check for single nodes. The check reads the present state of the cluster at each call, so that
	// pods can be added and removed temporarily.
	Filter func(t *Task) Check
	// NodeOnly reports that the check depends only on the pod's shape and the node object.
	NodeOnly bool
	// Score returns the function that rates the nodes that fit.
	Score func(t *Task, fit []*cluster.Node) Rate
	// Normalize scales the rates of all nodes that fit to 0 … MaxScore. It is nil if Rate returns such values.
	Normalize func(scores []int64)
	Weight    int64
	// Wakes holds the events after which a pod that the plugin refused may fit. Hint checks a single event more
	// closely.
	Wakes Event
	Hint  func(t *Task, what Happened) bool
}

// Check returns why a node does not fit, or nil.
type Check func(n *cluster.Node) *Refusal

// Rate returns a node's score. Higher is better, unless Normalize reverses it.
type Rate func(n *cluster.Node) int64

// Task is one pod to schedule, with the arguments of its profile.
type Task struct {
	*cluster.Cluster
	Pod  *cluster.Pod
	Args *Args
}

// Refusal is a reason why a node does not fit. Final means that removing pods would not help. Equal refusals are the
// same pointer where possible.
type Refusal struct {
	Plugin  string
	Reasons []string
	Final   bool
}

func final(plugin, reason string) *Refusal { return &Refusal{plugin, []string{reason}, true} }
func open(plugin, reason string) *Refusal  { return &Refusal{plugin, []string{reason}, false} }

// MaxScore is the highest score that a plugin gives.
const MaxScore = 100

// Named returns a plugin by its name.
func Named(name string) (*Plugin, bool) {
	for i := range All {
		if All[i].Name == name {
			return &All[i], true
		}
	}
	return nil, false
}

// highest scales scores so that the highest becomes MaxScore.
func highest(scores []int64) {
	var top int64
	for _, s := range scores {
		top = max(top, s)
	}
	for i, s := range scores {
		if top > 0 {
			scores[i] = s * MaxScore / top
		}
	}
}

// reversed scales scores and reverses them, so that the lowest becomes the best.
func reversed(scores []int64) {
	highest(scores)
	for i, s := range scores {
		scores[i] = MaxScore - s
	}
}

// ranged scales scores, which may be negative, so that the lowest becomes 0 and the highest MaxScore.
func ranged(scores []int64) {
	if len(scores) == 0 {
		return
	}
	low, high := scores[0], scores[0]
	for _, s := range scores {
		low, high = min(low, s), max(high, s)
	}
	for i, s := range scores {
		scores[i] = 0
		if high > low {
			scores[i] = int64(MaxScore * (float64(s-low) / float64(high-low)))
		}
	}
}
