package plugin

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/scheduler/cluster"
)

var (
	skewTooLarge       = resolvableRefusal("PodTopologySpread", "node(s) didn't match pod topology spread constraints")
	topologyKeyMissing = finalRefusal("PodTopologySpread",
		"node(s) didn't match pod topology spread constraints (missing required label)")
)

// spreadConstraints returns the pod's spread constraints that are required, or not, or else the profile's defaults.
// strict reports that nodes must have all topology keys. That is so unless the constraints are Kubernetes' own
// defaults.
func spreadConstraints(t *Task, required bool) (list []cluster.Constraint, strict bool) {
	if len(t.Pod.Constraints) > 0 {
		for _, c := range t.Pod.Constraints {
			if c.Required == required {
				list = append(list, c)
			}
		}
		return list, true
	}
	siblings := (*cluster.PodSelector)(nil)
	for _, d := range t.Args.DefaultConstraints {
		if d.Required != required {
			continue
		}
		if siblings == nil {
			if siblings = t.Siblings(t.Pod.Shape); siblings == nil {
				return nil, false
			}
		}
		list = append(list, cluster.Constraint{
			PodSelector: siblings, Key: d.Key, MaxSkew: d.MaxSkew, MinDomains: d.MinDomains, Required: required,
			HonorNodes: d.HonorNodes, HonorTaint: d.HonorTaint,
		})
	}
	return list, t.Args.HasConfiguredConstraints
}

func topologyKeys(list []cluster.Constraint) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].Key
	}
	return out
}

func newSpread(t *Task, c *cluster.Constraint, keys []string) *cluster.Spread {
	return &cluster.Spread{
		Keys:           keys,
		Shape:          t.Pod.Shape,
		HonorsAffinity: c.HonorNodes,
		HonorsTaints:   c.HonorTaint,
		Tolerates:      isNodeTolerated,
	}
}

// topologySpread refuses nodes on which the pod would make its domain exceed the minimum by more than maxSkew. With
// fewer domains than minDomains, the minimum is 0.
func topologySpread(t *Task) Check {
	list, _ := spreadConstraints(t, true)
	if len(list) == 0 {
		return nil
	}
	tables, self, all := make([]*cluster.Table, len(list)), make([]int, len(list)), topologyKeys(list)
	for i := range list {
		c := &list[i]
		tables[i] = t.Table(c.PodSelector, c.Key, newSpread(t, c, all))
		if t.Selects(c.PodSelector, t.Pod.Shape) {
			self[i] = 1
		}
	}
	return func(n *cluster.Node) *Refusal {
		for i, table := range tables {
			if _, ok := table.Domain(n); !ok {
				return topologyKeyMissing
			}
			minimum := 0
			if table.Domains() >= list[i].MinDomains {
				minimum = table.Minimum()
			}
			if table.Count(n)+self[i]-minimum > list[i].MaxSkew {
				return skewTooLarge
			}
		}
		return nil
	}
}

// spreadHint reports whether an event may help. That is an event about pods that the constraints count, or about a
// node that changed its domain or whether it counts.
func spreadHint(t *Task, what ClusterEvent) bool {
	if what.EventKind == DomainsChanged && what.NodeBefore != nil {
		list, _ := spreadConstraints(t, true)
		return slices.ContainsFunc(list, func(c cluster.Constraint) bool {
			return what.Node.HasMoved(what.NodeBefore, c.Key) || c.HonorTaint &&
				what.Node.HasNewTaints(what.NodeBefore) ||
				c.HonorNodes && t.Pod.HasRequired && what.Node.HasNewLabels(what.NodeBefore)
		})
	}
	if what.Pod == nil {
		return true
	}
	if what.StillOnNode && what.Pod.DeletionTimestamp == nil {
		return false // it uses less, and counts as before
	}
	list, _ := spreadConstraints(t, true)
	for i := range list {
		counts := t.Selects(list[i].PodSelector, what.Pod.Shape)
		if what.PodBefore != nil && counts != t.Selects(list[i].PodSelector, what.PodBefore.Shape) ||
			what.PodBefore == nil && counts {
			return true
		}
	}
	return false
}

// unranked is the score of nodes that lack a required topology key.
const unranked = -1

// spreadScore sums up the selected pods in a node's domains. Small topologies have a lower weight. Fewer pods are
// better.
func spreadScore(t *Task, fit []*cluster.Node) Rate {
	list, strict := spreadConstraints(t, false)
	if len(list) == 0 {
		return nil
	}
	var all []string
	if strict {
		all = topologyKeys(list)
	}
	ranked := func(n *cluster.Node) bool {
		for _, key := range all {
			if _, ok := n.Labels[key]; !ok {
				return false
			}
		}
		return true
	}
	tables, weights := make([]*cluster.Table, len(list)), make([]float64, len(list))
	domains := make([]*cluster.Table, len(list))
	for i := range list {
		c := &list[i]
		if c.Key == corev1.LabelHostname { // counted per node, on all nodes
			tables[i] = t.Table(c.PodSelector, "", &cluster.Spread{})
			domains[i] = t.Table(c.PodSelector, c.Key, nil)
		} else {
			tables[i] = t.Table(c.PodSelector, c.Key, newSpread(t, c, all))
			domains[i] = tables[i]
		}
		weights[i] = math.Log(float64(countDomains(domains[i], c.Key, fit, ranked) + 2))
	}
	return func(n *cluster.Node) int64 {
		if !ranked(n) {
			return unranked
		}
		var sum float64
		for i, table := range tables {
			if _, ok := domains[i].Domain(n); ok {
				sum += float64(table.Count(n))*weights[i] + float64(list[i].MaxSkew-1)
			}
		}
		return int64(math.Round(sum))
	}
}

// countDomains returns the number of domains of the nodes that fit. For the hostname key, each node counts. Nodes
// without the key count as one more domain.
func countDomains(table *cluster.Table, key string, fit []*cluster.Node, ranked func(*cluster.Node) bool) int {
	count := 0
	var seen []bool
	for _, n := range fit {
		if !ranked(n) {
			continue
		}
		if key == corev1.LabelHostname {
			count++
			continue
		}
		d, ok := table.Domain(n)
		if d++; !ok {
			d = 0
		}
		for len(seen) <= d {
			seen = append(seen, false)
		}
		if !seen[d] {
			seen[d] = true
			count++
		}
	}
	return count
}

func spreadNormalize(scores []int64) {
	var minimum, maximum int64 = math.MaxInt64, 0
	for _, s := range scores {
		if s != unranked {
			minimum, maximum = min(minimum, s), max(maximum, s)
		}
	}
	for i, s := range scores {
		switch {
		case s == unranked:
			scores[i] = 0
		case maximum == 0:
			scores[i] = MaxScore
		default:
			scores[i] = MaxScore * (maximum + minimum - s) / maximum
		}
	}
}
