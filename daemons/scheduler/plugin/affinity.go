package plugin

import (
	"slices"

	"clusterctl/daemons/scheduler/cluster"
)

var (
	affinityUnmet                = finalRefusal("InterPodAffinity", "node(s) didn't match pod affinity rules")
	antiAffinityViolated         = resolvableRefusal("InterPodAffinity", "node(s) didn't match pod anti-affinity rules")
	existingAntiAffinityViolated = resolvableRefusal("InterPodAffinity", "node(s) didn't satisfy existing pods "+
		"anti-affinity rules")
)

// podAffinity refuses nodes that violate the pod's required affinity or anti-affinity, or the required anti-affinity of
// pods on nodes.
func podAffinity(t *Task) Check {
	shape := t.Pod.Shape
	others := t.ExistingTerms(shape)
	if len(shape.Affinity)+len(shape.AntiAffinity) == 0 && others.IsEmpty() {
		return nil
	}
	near, far := make([]*cluster.Table, len(shape.Affinity)), make([]*cluster.Table, len(shape.AntiAffinity))
	for i := range shape.Affinity {
		near[i] = t.Table(shape.AffinityIntersection, shape.Affinity[i].Key, nil)
	}
	for i := range shape.AntiAffinity {
		far[i] = t.Table(shape.AntiAffinity[i].PodSelector, shape.AntiAffinity[i].Key, nil)
	}
	self := len(near) > 0 && t.Selects(shape.AffinityIntersection, shape)
	return func(n *cluster.Node) *Refusal {
		if len(near) > 0 && !areTermsMet(near, n, self) {
			return affinityUnmet
		}
		for _, table := range far {
			if table.Count(n) > 0 {
				return antiAffinityViolated
			}
		}
		if others.Forbids(n) {
			return existingAntiAffinityViolated
		}
		return nil
	}
}

// areTermsMet reports whether each term has a selected pod in the node's domain. The first pod of a group with affinity
// to itself may go to any node with the domains.
func areTermsMet(tables []*cluster.Table, n *cluster.Node, self bool) bool {
	near, anywhere := true, false
	for _, table := range tables {
		if _, ok := table.Domain(n); !ok {
			return false
		}
		near = near && table.Count(n) > 0
		anywhere = anywhere || table.Total() > 0
	}
	return near || !anywhere && self
}

// affinityHint reports whether an event may help. It may if the pod's terms select the event's pod, or the other
// way round. It may also if a node changed its domain for one of these terms.
func affinityHint(t *Task, what ClusterEvent) bool {
	if what.EventKind == DomainsChanged && what.NodeBefore != nil {
		moved := func(term cluster.Term) bool { return what.Node.HasMoved(what.NodeBefore, term.Key) }
		return slices.ContainsFunc(t.Pod.Affinity, moved) || slices.ContainsFunc(t.Pod.AntiAffinity, moved) ||
			t.ExistingTerms(t.Pod.Shape).HasMoved(what.Node, what.NodeBefore)
	}
	if what.Pod == nil {
		return true
	}
	if what.StillOnNode {
		return false // it counts until it is gone
	}
	return haveTermsForEachOther(t, t.Pod.Shape, what.Pod.Shape) ||
		what.PodBefore != nil && haveTermsForEachOther(t, t.Pod.Shape, what.PodBefore.Shape)
}

func haveTermsForEachOther(t *Task, mine, theirs *cluster.Shape) bool {
	about := func(terms []cluster.Term, s *cluster.Shape) bool {
		for i := range terms {
			if t.Selects(terms[i].PodSelector, s) {
				return true
			}
		}
		return false
	}
	return about(mine.Affinity, theirs) || about(mine.AntiAffinity, theirs) || about(theirs.AntiAffinity, mine)
}

// affinityScore sums up the preferences of the pod and of pods on nodes for being near each other.
func affinityScore(t *Task, _ []*cluster.Node) Rate {
	shape, hard := t.Pod.Shape, t.Args.HardAffinityWeight
	type preference struct {
		table  *cluster.Table
		weight int64
	}
	var mine []preference
	for i := range shape.PreferredAffinity {
		p := &shape.PreferredAffinity[i]
		mine = append(mine, preference{t.Table(p.PodSelector, p.Key, nil), p.Weight})
	}
	for i := range shape.PreferredAntiAffinity {
		p := &shape.PreferredAntiAffinity[i]
		mine = append(mine, preference{t.Table(p.PodSelector, p.Key, nil), -p.Weight})
	}
	others := t.ExistingTerms(shape)
	if len(mine) == 0 && (others.IsEmpty() || t.Args.IgnoreExistingPreferred) {
		return nil
	}
	return func(n *cluster.Node) int64 {
		sum := others.Score(n, hard)
		for _, p := range mine {
			sum += int64(p.table.Count(n)) * p.weight
		}
		return sum
	}
}
