// Package plugin contains the scheduler's criteria: filters, which report whether a node fits and why not, and scores,
// which rate nodes that fit. They only read a cluster.Cluster. They make no requests and change nothing. Package
// scheduler decides when to run them and acts on the results.
package plugin

import (
	"clusterctl/daemons/scheduler/cluster"
)

// All lists the plugins in the order in which filters run. The first filter that refuses a node provides the reason.
var All = []Plugin{
	{Name: "NodeUnschedulable", Filter: nodeUnschedulable, NeedsOnlyNode: true, HelpfulEvents: NodeChanged},
	{Name: "NodeName", Filter: nodeName, NeedsOnlyNode: true, HelpfulEvents: NodeChanged},
	{
		Name:          "TaintToleration",
		Filter:        taintToleration,
		NeedsOnlyNode: true,
		Score:         taintScore,
		Normalize:     scaleReversed,
		Weight:        3,
		HelpfulEvents: NodeChanged,
	},
	{
		Name:          "NodeAffinity",
		RefuseAll:     termsConflict,
		Filter:        nodeAffinity,
		NeedsOnlyNode: true,
		Score:         nodeAffinityScore,
		Normalize:     scaleToHighest,
		Weight:        2,
		HelpfulEvents: NodeChanged,
	},
	{Name: "NodePorts", Filter: nodePorts, HelpfulEvents: NodeChanged | PodGone, Hint: portsHint},
	{
		Name:          "NodeResourcesFit",
		Filter:        nodeResourcesFit,
		Score:         fitScore,
		Weight:        1,
		HelpfulEvents: NodeChanged | PodGone | DevicesChanged,
		Hint:          fitHint,
	},
	{
		Name:          "VolumeRestrictions",
		RefuseAll:     claimMissing,
		Filter:        volumeRestrictions,
		HelpfulEvents: NodeChanged | DomainsChanged | PodGone | StorageChanged,
		Hint:          disksHint,
	},
	{
		Name:          "NodeVolumeLimits",
		Filter:        volumeLimits,
		HelpfulEvents: NodeChanged | PodGone | StorageChanged,
		Hint:          limitsHint,
	},
	{
		Name:          "VolumeBinding",
		RefuseAll:     claimUnusable,
		Filter:        volumeBinding,
		Score:         volumeScore,
		Weight:        1,
		HelpfulEvents: NodeChanged | StorageChanged,
		Hint:          bindingHint,
	},
	{
		Name:          "VolumeZone",
		RefuseAll:     volumeMissing,
		Filter:        volumeZone,
		HelpfulEvents: NodeChanged | StorageChanged,
		Hint:          zoneHint,
	},
	{
		Name:          "PodTopologySpread",
		Filter:        topologySpread,
		Score:         spreadScore,
		Normalize:     spreadNormalize,
		Weight:        2,
		HelpfulEvents: NodeChanged | DomainsChanged | PodGone | PodPlaced,
		Hint:          spreadHint,
	},
	{
		Name:          "InterPodAffinity",
		Filter:        podAffinity,
		Score:         affinityScore,
		Normalize:     scaleRange,
		Weight:        2,
		HelpfulEvents: NodeChanged | DomainsChanged | PodGone | PodPlaced,
		Hint:          affinityHint,
	},
	{
		Name:          "DynamicResources",
		RefuseAll:     devicesUnusable,
		Filter:        devicesFit,
		Score:         devicesScore,
		Normalize:     scaleToHighest,
		Weight:        2,
		HelpfulEvents: NodeChanged | DevicesChanged,
		Hint:          devicesHint,
	},
	{Name: "NodeResourcesBalancedAllocation", Score: balancedScore, Weight: 1},
	{Name: "ImageLocality", Score: imageScore, Weight: 1},
	{Name: "NodeDeclaredFeatures", Filter: declaredFeatures, HelpfulEvents: NodeChanged, Hint: featuresHint},
}

// Plugin is a filter, a score, or both. A plugin that does not apply to a pod returns nil for it.
type Plugin struct {
	Name string
	// RefuseAll refuses a pod on all nodes, before any node is checked.
	RefuseAll func(t *Task) *Refusal
	// Filter returns the check for single nodes. The check reads the present state of the cluster at each call, so that
	// pods can be added and removed temporarily.
	Filter func(t *Task) Check
	// NeedsOnlyNode reports that the check depends only on the pod's shape and the node object.
	NeedsOnlyNode bool
	// Score returns the function that rates the nodes that fit.
	Score func(t *Task, fit []*cluster.Node) Rate
	// Normalize scales the rates of all nodes that fit to 0 … MaxScore. It is nil if Rate returns such values.
	Normalize func(scores []int64)
	Weight    int64
	// HelpfulEvents holds the events after which a pod that the plugin refused may fit. Hint checks a single event more
	// closely.
	HelpfulEvents EventKind
	Hint          func(t *Task, what ClusterEvent) bool
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

// Refusal is a reason why a node does not fit. IsFinal means that removing pods would not help. Equal refusals are the
// same pointer where possible.
type Refusal struct {
	Plugin  string
	Reasons []string
	IsFinal bool
}

func finalRefusal(plugin, reason string) *Refusal { return &Refusal{plugin, []string{reason}, true} }
func resolvableRefusal(plugin, reason string) *Refusal {
	return &Refusal{plugin, []string{reason}, false}
}

// MaxScore is the highest score that a plugin gives.
const MaxScore = 100

// ByName returns a plugin by its name.
func ByName(name string) (*Plugin, bool) {
	for i := range All {
		if All[i].Name == name {
			return &All[i], true
		}
	}
	return nil, false
}

// scaleToHighest scales scores so that the highest becomes MaxScore.
func scaleToHighest(scores []int64) {
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

// scaleReversed scales scores and reverses them, so that the lowest becomes the best.
func scaleReversed(scores []int64) {
	scaleToHighest(scores)
	for i, s := range scores {
		scores[i] = MaxScore - s
	}
}

// scaleRange scales scores, which may be negative, so that the lowest becomes 0 and the highest MaxScore.
func scaleRange(scores []int64) {
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
