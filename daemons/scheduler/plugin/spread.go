package plugin

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/scheduler/cluster"
)

var (
	tooUneven = open("PodTopologySpread", "node(s) didn't match pod topology spread constraints")
	noDomain  = final(
		"PodTopologySpread",
		"node(s) didn't match pod topology spread constraints (missing required label)",
	)
)

// constraints returns the pod's spread constraints that are required, or not, or else the profile's defaults. strict
// reports that nodes must have all topology keys. That is so unless the constraints are Kubernetes' own defaults.
func constraints(t *Task, required bool) (list []cluster.Constraint, strict bool) {
	if len(t.Pod.Constraints) > 0 {
		for _, c := range t.Pod.Constraints {
			if c.Required == required {
				list = append(list, c)
			}
		}
		return list, true
	}
	siblings := (*cluster.About)(nil)
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
			About: siblings, Key: d.Key, MaxSkew: d.MaxSkew, MinDomains: d.MinDomains, Required: required,
			HonorNodes: d.HonorNodes, HonorTaint: d.HonorTaint,
		})
	}
	return list, t.Args.OwnConstraints
}

func keys(list []cluster.Constraint) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].Key
	}
	return out
}

func counting(t *Task, c *cluster.Constraint, keys []string) *cluster.Spread {
	return &cluster.Spread{
		Keys:      keys,
		Shape:     t.Pod.Shape,
		Nodes:     c.HonorNodes,
		Taint:     c.HonorTaint,
		Tolerates: toleratesNode,
	}
}

// topologySpread refuses nodes on which the pod would make its domain exceed the minimum by more than maxSkew. With
// fewer domains than minDomains, the minimum is 0.
func topologySpread(t *Task) Check {
	list, _ := constraints(t, true)
	if len(list) == 0 {
		return nil
	}
	tables, self, all := make([]*cluster.Table, len(list)), make([]int, len(list)), keys(list)
	for i := range list {
		c := &list[i]
		tables[i] = t.Table(c.About, c.Key, counting(t, c, all))
		if t.Chooses(c.About, t.Pod.Shape) {
			self[i] = 1
		}
	}
	return func(n *cluster.Node) *Refusal {
		for i, table := range tables {
			if _, ok := table.Domain(n); !ok {
				return noDomain
			}
			least := 0
			if table.Domains() >= list[i].MinDomains {
				least = table.Least()
			}
			if table.Count(n)+self[i]-least > list[i].MaxSkew {
				return tooUneven
			}
		}
		return nil
	}
}

// spreadConcerned reports whether an event may help. That is an event about pods that the constraints count, or about a
// node that changed its domain or whether it counts.
func spreadConcerned(t *Task, what Happened) bool {
	if what.Event == DomainsChanged && what.Before != nil {
		list, _ := constraints(t, true)
		return slices.ContainsFunc(list, func(c cluster.Constraint) bool {
			return what.Node.Moved(what.Before, c.Key) || c.HonorTaint && what.Node.Retainted(what.Before) ||
				c.HonorNodes && t.Pod.Selective && what.Node.Relabelled(what.Before)
		})
	}
	if what.Pod == nil {
		return true
	}
	if what.Leaving && what.Pod.DeletionTimestamp == nil {
		return false // it uses less, and counts as before
	}
	list, _ := constraints(t, true)
	for i := range list {
		counts := t.Chooses(list[i].About, what.Pod.Shape)
		if what.Was != nil && counts != t.Chooses(list[i].About, what.Was.Shape) || what.Was == nil && counts {
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
	list, strict := constraints(t, false)
	if len(list) == 0 {
		return nil
	}
	var all []string
	if strict {
		all = keys(list)
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
			tables[i] = t.Table(c.About, "", &cluster.Spread{})
			domains[i] = t.Table(c.About, c.Key, nil)
		} else {
			tables[i] = t.Table(c.About, c.Key, counting(t, c, all))
			domains[i] = tables[i]
		}
		weights[i] = math.Log(float64(size(domains[i], c.Key, fit, ranked) + 2))
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

// size returns the number of domains of the nodes that fit. For the hostname key, each node counts. Nodes without the
// key count as one more domain.
func size(table *cluster.Table, key string, fit []*cluster.Node, ranked func(*cluster.Node) bool) int {
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
	var least, most int64 = math.MaxInt64, 0
	for _, s := range scores {
		if s != unranked {
			least, most = min(least, s), max(most, s)
		}
	}
	for i, s := range scores {
		switch {
		case s == unranked:
			scores[i] = 0
		case most == 0:
			scores[i] = MaxScore
		default:
			scores[i] = MaxScore * (most + least - s) / most
		}
	}
}
