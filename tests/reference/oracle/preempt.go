package oracle

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// candidate is a node where a pod fits without the victims.
type candidate struct {
	node       string
	victims    []*corev1.Pod // the most important first
	violations int           // number of victims that a disruption budget protects
}

// Preempt returns which pods must be removed so that a pod that fits nowhere fits, and the node. It tries every node.
// Of equally good nodes it chooses the first one in w.Nodes.
func (w *World) Preempt(pod *corev1.Pod) (node string, victims []string, ok bool) {
	verdicts := w.Evaluate(pod)
	c := w.simulate(pod)
	if !c.canPreempt(pod, verdicts) {
		return "", nil, false
	}
	var candidates []candidate
	for i, v := range verdicts {
		if v.Plugin == "" {
			return "", nil, false
		}
		if v.IsUnresolvable {
			continue
		}
		if found, ok := c.victims(pod, w.Nodes[i]); ok {
			candidates = append(candidates, found)
		}
	}
	if len(candidates) == 0 {
		return "", nil, false
	}
	best := slices.MinFunc(candidates, compareCandidates)
	for _, p := range best.victims {
		victims = append(victims, p.Namespace+"/"+p.Name)
	}
	slices.Sort(victims)
	return best.node, victims, true
}

// canPreempt reports whether the pod may preempt others. It may not if its policy forbids it, or while victims of its
// last preemption are still ending.
func (c *simulation) canPreempt(pod *corev1.Pod, verdicts []Verdict) bool {
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever {
		return false
	}
	for _, v := range verdicts {
		if v.Node != pod.Status.NominatedNodeName || v.Plugin != "" && v.IsUnresolvable {
			continue
		}
		for _, p := range c.podsOn(c.node(v.Node)) {
			if podPriority(p) < podPriority(pod) && isPreempted(p) {
				return false
			}
		}
	}
	return true
}

func isPreempted(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue &&
			c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// victims removes all pods of a lower priority from the node. If the pod fits then, they are added again one by one, as
// long as the pod still fits: first those that budgets protect, and the more important first. The pods that cannot be
// added again are the victims.
func (c *simulation) victims(pod *corev1.Pod, node *corev1.Node) (candidate, bool) {
	result := candidate{node: node.Name}
	without := &simulation{World: c.World}
	var lower []placedPod
	for _, p := range c.pods {
		if p.node == node && podPriority(p.pod) < podPriority(pod) {
			lower = append(lower, p)
		} else {
			without.pods = append(without.pods, p)
		}
	}
	if len(lower) == 0 || without.evaluate(pod, node) != nil {
		return result, false
	}
	slices.SortStableFunc(lower, func(a, b placedPod) int { return compareImportance(a.pod, b.pod) })
	protected, others := c.splitByBudget(lower)
	for i, p := range append(protected, others...) {
		with := &simulation{World: c.World, pods: append(slices.Clone(without.pods), p)}
		if with.evaluate(pod, node) == nil {
			without = with
			continue
		}
		result.victims = append(result.victims, p.pod)
		if i < len(protected) {
			result.violations++
		}
	}
	slices.SortStableFunc(result.victims, compareImportance)
	return result, len(result.victims) > 0
}

// compareImportance orders pods by priority, then by how long they run. A pod that has not started comes last.
func compareImportance(a, b *corev1.Pod) int {
	if podPriority(a) != podPriority(b) {
		return cmp.Compare(podPriority(b), podPriority(a))
	}
	return startTime(a).Compare(startTime(b))
}

func startTime(p *corev1.Pod) time.Time {
	if p.Status.StartTime == nil {
		return time.Unix(1<<40, 0)
	}
	return p.Status.StartTime.Time
}

// splitByBudget separates the pods whose end would exceed a disruption budget, if those before them have ended, from
// the others. Pods whose eviction a budget has already counted do not count again.
func (c *simulation) splitByBudget(pods []placedPod) (violating, others []placedPod) {
	left := map[string]int32{}
	for _, b := range c.Budgets {
		left[b.Namespace+"/"+b.Name] = b.Status.DisruptionsAllowed
	}
	for _, p := range pods {
		violates := false
		for _, b := range c.Budgets {
			if b.Namespace != p.pod.Namespace || len(p.pod.Labels) == 0 || isEmptySelector(b.Spec.Selector) ||
				!selects(b.Spec.Selector, p.pod.Labels) {
				continue
			}
			if _, counted := b.Status.DisruptedPods[p.pod.Name]; counted {
				continue
			}
			left[b.Namespace+"/"+b.Name]--
			violates = violates || left[b.Namespace+"/"+b.Name] < 0
		}
		if violates {
			violating = append(violating, p)
		} else {
			others = append(others, p)
		}
	}
	return violating, others
}

// compareCandidates orders nodes. First come those with fewer violations of budgets, then those whose most important
// victim has the lower priority. Then it compares the sums of the victims' priorities and the numbers of victims. Last
// it prefers the node whose longest running victim of the highest priority started latest.
func compareCandidates(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.violations, b.violations), cmp.Compare(podPriority(a.victims[0]),
		podPriority(b.victims[0])), cmp.Compare(a.priorities(), b.priorities()),
		cmp.Compare(len(a.victims), len(b.victims)), startTime(b.victims[0]).Compare(startTime(a.victims[0])))
}

// priorities returns the sum of the victims' priorities, each raised to be positive, so that fewer victims are better.
func (n candidate) priorities() int64 {
	var sum int64
	for _, p := range n.victims {
		sum += int64(podPriority(p)) + 1<<31
	}
	return sum
}
