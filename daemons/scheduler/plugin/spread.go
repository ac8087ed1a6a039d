package plugin

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// constraint is one of a pod's demands to be spread over a topology.
type constraint struct {
	*corev1.TopologySpreadConstraint
	selector labels.Selector
	counts   map[string]int // chosen pods by value of the key, of nodes that count
	self     int            // 1 when the pod itself is chosen
}

// constraints counts the chosen pods for the constraints that are handled alike.
func constraints(pod *Pod, s *Snapshot, action corev1.UnsatisfiableConstraintAction) []*constraint {
	var out []*constraint
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != action {
			continue
		}
		one := &constraint{TopologySpreadConstraint: c, selector: selectorOf(c.LabelSelector), counts: map[string]int{}}
		for _, key := range c.MatchLabelKeys {
			one.selector = also(one.selector, pod.Pod, key, "In")
		}
		if one.selector.Matches(labels.Set(pod.Labels)) {
			one.self = 1
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		return nil
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	tolerates := taints(pod, s)
	for _, n := range s.Nodes {
		if !hasKeys(n, out) {
			continue
		}
		for _, c := range out {
			if !c.includes(n, required, tolerates) {
				continue
			}
			v := n.Labels[c.TopologyKey]
			c.counts[v] += 0 // a domain without pods counts, too
			for _, p := range n.Pods {
				if p.DeletionTimestamp == nil && p.Namespace == pod.Namespace && c.selector.Matches(labels.Set(p.Labels)) {
					c.counts[v]++
				}
			}
		}
	}
	return out
}

// hasKeys says whether a node is in a domain of each constraint.
func hasKeys(n *Node, list []*constraint) bool {
	for _, c := range list {
		if _, ok := n.Labels[c.TopologyKey]; !ok {
			return false
		}
	}
	return true
}

// includes says whether a node counts: by default those that the pod's selector
// admits, whatever their taints.
func (c *constraint) includes(n *Node, required nodeaffinity.RequiredNodeAffinity, tolerates Check) bool {
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
		if ok, err := required.Match(n.Node); !ok || err != nil {
			return false
		}
	}
	return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore || len(tolerates(n)) == 0
}

// least is the smallest number of chosen pods in a domain.
func (c *constraint) least() int {
	least := math.MaxInt
	for _, n := range c.counts {
		least = min(least, n)
	}
	if least == math.MaxInt || c.MinDomains != nil && len(c.counts) < int(*c.MinDomains) {
		return 0
	}
	return least
}

// spread refuses nodes where the pod would make a domain too full.
func spread(pod *Pod, s *Snapshot) Check {
	list := constraints(pod, s, corev1.DoNotSchedule)
	if len(list) == 0 {
		return nil
	}
	least := make([]int, len(list))
	for i, c := range list {
		least[i] = c.least()
	}
	return func(n *Node) []string {
		for i, c := range list {
			v, ok := n.Labels[c.TopologyKey]
			if !ok {
				return []string{"node(s) didn't match pod topology spread constraints (missing required label)"}
			}
			if c.counts[v]+c.self-least[i] > int(c.MaxSkew) {
				return []string{"node(s) didn't match pod topology spread constraints"}
			}
		}
		return nil
	}
}

// Without constraints of its own, a pod of a workload is spread over machines and, more
// loosely, over zones.
var usualSpread = []corev1.TopologySpreadConstraint{
	{MaxSkew: 3, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway},
	{MaxSkew: 5, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway},
}

// evenlySpread counts the chosen pods in a node's domains: the fewer, the better.
func evenlySpread(pod *Pod, s *Snapshot) Rate {
	list := constraints(pod, s, corev1.ScheduleAnyway)
	if len(pod.Spec.TopologySpreadConstraints) == 0 {
		list = siblings(pod, s)
	}
	if len(list) == 0 {
		return nil
	}
	weights := make([]float64, len(list))
	for i, c := range list {
		weights[i] = math.Log(float64(len(c.counts) + 2))
	}
	return func(n *Node) int64 {
		var sum float64
		for i, c := range list {
			if v, ok := n.Labels[c.TopologyKey]; ok {
				sum += float64(c.counts[v])*weights[i] + float64(c.MaxSkew-1)
			}
		}
		return int64(math.Round(sum))
	}
}

// siblings counts the pods of the same owner by machine and zone.
func siblings(pod *Pod, s *Snapshot) []*constraint {
	if pod.owner == "" {
		return nil
	}
	var out []*constraint
	for i := range usualSpread {
		c := &constraint{TopologySpreadConstraint: &usualSpread[i], counts: map[string]int{}}
		for _, n := range s.Nodes {
			v, ok := n.Labels[c.TopologyKey]
			if !ok {
				continue
			}
			c.counts[v] += 0
			for _, p := range n.Pods {
				if p.DeletionTimestamp == nil && p.owner == pod.owner {
					c.counts[v]++
				}
			}
		}
		if len(c.counts) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func ownerOf(pod *corev1.Pod) string {
	for i := range pod.OwnerReferences {
		if o := &pod.OwnerReferences[i]; o.Controller != nil && *o.Controller {
			return string(o.UID)
		}
	}
	return ""
}
