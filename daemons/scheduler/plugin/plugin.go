// Package plugin is what the scheduler goes by when it places a pod: filters that report whether a node will do and why
// not, and scores that say how well it suits. All look things up in a cluster; they ask nobody and change nothing. When
// to look, and what to do with the answer, is package scheduler's.
package plugin

import (
	"clusterctl/daemons/scheduler/cluster"
)

// All are the plugins that there are, in the order in which filters are asked: the first that refuses a node explains
// why.
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

// Plugin is a filter, a score, or both. One that does not concern a pod returns nil for it.
type Plugin struct {
	Name string
	// Everywhere refuses a pod on all nodes, before any is looked at.
	Everywhere func(t *Task) *Refusal
	// Filter returns the check of single nodes. A check reads the cluster as it is when it is asked, so that pods can
	// be added and removed for a try.
	Filter func(t *Task) Check
	// NodeOnly says that the check depends on nothing but the pod's shape and the node object.
	NodeOnly bool
	// Score returns how well nodes suit, of those that will do.
	Score func(t *Task, fit []*cluster.Node) Rate
	// Normalize brings what Rate returned for all that will do between 0 and MaxScore; nil when Rate has done so.
	Normalize func(scores []int64)
	Weight    int64
	// Wakes are the events after which a pod may fit that the plugin has refused, and Hint looks closer at one event.
	Wakes Event
	Hint  func(t *Task, what Happened) bool
}

// Check returns why a node will not do, nil when it will.
type Check func(n *cluster.Node) *Refusal

// Rate is one node's score, the higher the better unless Normalize turns it round.
type Rate func(n *cluster.Node) int64

// Task is one pod that is to be placed, by the arguments of its profile.
type Task struct {
	*cluster.Cluster
	Pod  *cluster.Pod
	Args *Args
}

// Refusal is why a node will not do. Final ones would stand if pods were removed. Equal ones are the same value where
// that can be.
type Refusal struct {
	Plugin  string
	Reasons []string
	Final   bool
}

func final(plugin, reason string) *Refusal { return &Refusal{plugin, []string{reason}, true} }
func open(plugin, reason string) *Refusal  { return &Refusal{plugin, []string{reason}, false} }

// MaxScore is what the best node has from one plugin.
const MaxScore = 100

// Named returns a plugin by name.
func Named(name string) (*Plugin, bool) {
	for i := range All {
		if All[i].Name == name {
			return &All[i], true
		}
	}
	return nil, false
}

// highest stretches scores so that the highest is MaxScore.
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

// reversed makes the lowest of scores the best.
func reversed(scores []int64) {
	highest(scores)
	for i, s := range scores {
		scores[i] = MaxScore - s
	}
}

// ranged stretches scores, which may be negative, so that the lowest is 0 and the highest MaxScore.
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
