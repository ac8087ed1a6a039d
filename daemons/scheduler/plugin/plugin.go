// Package plugin is what the scheduler goes by when it places a pod: filters that say
// whether a node will do and why not, and scores that say how well it suits. All are
// plain functions of a pod and a snapshot of the nodes; they ask nobody and change
// nothing. When to look, and what to do with the answer, is package scheduler's.
package plugin

// Filters are asked in this order; the first that refuses a node explains why.
var Filters = []Filter{
	{Name: "NodeUnschedulable", Prepare: unschedulable},
	{Name: "NodeName", Prepare: nodeName},
	{Name: "TaintToleration", Prepare: taints},
	{Name: "NodeAffinity", Prepare: nodeAffinity},
	{Name: "NodePorts", Prepare: ports, Helpable: true},
	{Name: "NodeResourcesFit", Prepare: resources, Helpable: true},
	{Name: "VolumeBinding", Prepare: volumes},
	{Name: "PodTopologySpread", Prepare: spread, Helpable: true},
	{Name: "InterPodAffinity", Prepare: podAffinity, Helpable: true},
}

// Scores are added up, each times its weight.
var Scores = []Score{
	{Name: "TaintToleration", Weight: 3, Prepare: preferUntainted, Normalize: reversed},
	{Name: "NodeAffinity", Weight: 2, Prepare: preferredNodes, Normalize: highest},
	{Name: "NodeResourcesFit", Weight: 1, Prepare: leastAllocated},
	{Name: "NodeResourcesBalancedAllocation", Weight: 1, Prepare: balanced},
	{Name: "PodTopologySpread", Weight: 2, Prepare: evenlySpread, Normalize: reversed},
	{Name: "InterPodAffinity", Weight: 2, Prepare: preferredPods, Normalize: ranged},
	{Name: "ImageLocality", Weight: 1, Prepare: imageLocality},
}

// Filter says whether nodes will do for a pod.
type Filter struct {
	Name string
	// Prepare looks at the pod and all nodes once, and returns the check of single
	// nodes; nil when every node will do.
	Prepare func(pod *Pod, s *Snapshot) Check
	// Helpable says that a node which is refused might do if pods were taken off it.
	Helpable bool
}

// Check returns why a node will not do; nothing when it will.
type Check func(n *Node) (reasons []string)

// Score says how well nodes suit a pod.
type Score struct {
	Name    string
	Weight  int64
	Prepare func(pod *Pod, s *Snapshot) Rate // nil when all nodes are as good
	// Normalize brings what Rate returned for all candidates between 0 and MaxScore; nil
	// when Rate has done so.
	Normalize func(scores []int64)
}

// Rate is one node's score, the higher the better unless Normalize turns it round.
type Rate func(n *Node) int64

// MaxScore is what the best node has from one plugin.
const MaxScore = 100

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
	var top int64
	for _, s := range scores {
		top = max(top, s)
	}
	for i, s := range scores {
		scores[i] = MaxScore
		if top > 0 {
			scores[i] = MaxScore - s*MaxScore/top
		}
	}
}

// ranged stretches scores, which may be negative, so that the lowest is 0 and the
// highest MaxScore.
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
			scores[i] = (s - low) * MaxScore / (high - low)
		}
	}
}
