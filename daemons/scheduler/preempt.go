package scheduler

import (
	"cmp"
	"math"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
)

// Preemption is the result of looking for pods to remove for a more important one.
type Preemption struct {
	Node    *cluster.Node // nil if preemption does not help
	Victims []*cluster.Pod
	Reason  string // why preemption does not help
	// IsHopeless reports that no preemption helps, so that the pod need not keep its nominated node.
	IsHopeless bool
}

// budgets holds the PodDisruptionBudgets by namespace and name.
type budgets map[string]map[string]*budget

// budget is a PodDisruptionBudget.
type budget struct {
	selector  labels.Selector
	allowed   int32
	disrupted map[string]metav1.Time
}

func (b budgets) set(o *policyv1.PodDisruptionBudget) {
	selector, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
	if err != nil || selector.Empty() {
		selector = labels.Nothing()
	}
	if b[o.Namespace] == nil {
		b[o.Namespace] = map[string]*budget{}
	}
	b[o.Namespace][o.Name] = &budget{selector, o.Status.DisruptionsAllowed, o.Status.DisruptedPods}
}

func (b budgets) delete(o *policyv1.PodDisruptionBudget) {
	if delete(b[o.Namespace], o.Name); len(b[o.Namespace]) == 0 {
		delete(b, o.Namespace)
	}
}

// preempt selects the node on which preemption does the least harm. The criteria are: fewest violated disruption
// budgets, least important victims, fewest victims, shortest run time. refused is the result of
// selectNodeFor.
func (s *search) preempt(refused Placement, limits budgets) Preemption {
	pod := s.task.Pod
	switch {
	case s.profile.Preempt.IsDisabled:
		return Preemption{IsHopeless: true}
	case pod.NeverPreempts:
		return Preemption{Reason: "not eligible due to preemptionPolicy=Never."}
	case s.areVictimsTerminating():
		return Preemption{Reason: "not eligible due to a terminating pod on the nominated node."}
	}
	var best preemptionCandidate
	var try preemptionBuffers
	hopeless, found, breaking := map[*plugin.Refusal]int{}, 0, 0
	enough := max(len(refused.Resolvable)*s.profile.Preempt.Percent/100, s.profile.Preempt.MinNodes)
	for _, n := range refused.Resolvable {
		c := s.evaluateNode(n, limits, &try)
		if c.node == nil {
			hopeless[c.refusal]++
			continue
		}
		if c.budgetViolations > 0 {
			breaking++
		}
		if best.node == nil || c.compare(&best) < 0 && (c.budgetViolations == 0 || breaking <= enough) {
			c.victims = append(best.victims[:0], c.victims...) // swap the buffers: the next node reuses the old one
			best = c
		}
		if found++; found >= enough && best.budgetViolations == 0 {
			break // a candidate that violates a disruption budget is taken only if all others do too
		}
	}
	if best.node != nil {
		return Preemption{Node: best.node, Victims: best.victims}
	}
	if rest := refused.Nodes - len(refused.Resolvable); rest > 0 {
		hopeless[notHelpful] = rest
	}
	return Preemption{IsHopeless: true, Reason: refusalMessage(refused.Nodes, hopeless)}
}

// Reasons why preemption does not help on a node, other than what refuses the pod even without all lower-priority pods.
var (
	noVictims  = &plugin.Refusal{Reasons: []string{"No preemption victims found for incoming pod"}}
	notHelpful = &plugin.Refusal{Reasons: []string{"Preemption is not helpful for scheduling"}}
)

// areVictimsTerminating reports whether preempted pods are still being deleted on the pod's nominated node, provided
// that the node can fit at all.
func (s *search) areVictimsTerminating() bool {
	n := s.task.Node(s.task.Pod.Nominated)
	if n == nil {
		return false
	}
	if s.refusalForAll != nil && s.refusalForAll.IsFinal {
		return false
	}
	if s.task.Pod.OnlyNamed && !slices.Contains(s.task.Pod.NodeNames, n.Name) {
		return false
	}
	if s.refusalForAll == nil {
		if r := s.checkNode(n); r != nil && r.IsFinal {
			return false
		}
	}
	return slices.ContainsFunc(n.Pods,
		func(p *cluster.Pod) bool { return p.Priority < s.task.Pod.Priority && p.Preempted })
}

// preemptionBuffers holds lists that are reused for each node.
type preemptionBuffers struct{ lower, order, removed []*cluster.Pod }

// preemptionCandidate holds the cost of preemption on one node.
type preemptionCandidate struct {
	node             *cluster.Node   // nil if preemption does not help
	victims          []*cluster.Pod  // the most important first
	budgetViolations int             // victims that a disruption budget protects
	refusal          *plugin.Refusal // why preemption does not help
}

// evaluateNode removes all lower-priority pods from a node temporarily, and puts back those that can stay. Pods that
// budgets protect are put back first, then more important ones. Preemption does not help if the pod does not fit even
// then, or if no pod has to go. The victims share memory with try until the next call.
func (s *search) evaluateNode(n *cluster.Node, limits budgets, try *preemptionBuffers) preemptionCandidate {
	lower := try.lower[:0]
	for _, p := range n.Pods {
		if p.Priority < s.task.Pod.Priority {
			lower = append(lower, p)
		}
	}
	try.lower = lower
	if len(lower) == 0 {
		return preemptionCandidate{refusal: noVictims}
	}
	slices.SortStableFunc(lower, compareImportance)
	s.task.RetainTables(lower)
	defer s.task.ReleaseTables(lower)
	for _, p := range lower {
		s.task.Remove(p)
	}
	if cause := s.checkNode(n); cause != nil {
		for _, p := range lower {
			s.task.Add(p, n)
		}
		return preemptionCandidate{refusal: cause}
	}
	order, protected := limits.protectedFirst(lower, try.order[:0])
	removed, broken := try.removed[:0], 0
	for i, p := range order {
		if s.task.Add(p, n); s.checkNode(n) == nil {
			continue
		}
		s.task.Remove(p)
		removed = append(removed, p)
		if i < protected {
			broken++
		}
	}
	try.order, try.removed = order, removed
	for _, p := range removed {
		s.task.Add(p, n)
	}
	if len(removed) == 0 {
		return preemptionCandidate{refusal: noVictims}
	}
	slices.SortStableFunc(removed, compareImportance)
	return preemptionCandidate{node: n, victims: removed, budgetViolations: broken}
}

// compareImportance orders pods by descending priority, then by start time, the earliest first.
func compareImportance(a, b *cluster.Pod) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Started, b.Started), cmp.Compare(a.UID, b.UID))
}

// protectedFirst moves the pods whose removal would violate a disruption budget to the front, and returns their number.
// It assumes that the pods before them in the list are removed. Pods that a budget already counts as disrupted do not
// count again.
func (b budgets) protectedFirst(pods, order []*cluster.Pod) ([]*cluster.Pod, int) {
	if len(b) == 0 {
		return append(order, pods...), 0
	}
	left := map[*budget]int32{}
	var others []*cluster.Pod
	for _, p := range pods {
		violates := false
		for _, one := range b[p.Namespace] {
			if len(p.Labels) == 0 || !one.selector.Matches(labels.Set(p.Labels)) {
				continue
			}
			if _, counted := one.disrupted[p.Name]; counted {
				continue
			}
			if _, ok := left[one]; !ok {
				left[one] = one.allowed
			}
			left[one]--
			violates = violates || left[one] < 0
		}
		if violates {
			order = append(order, p)
		} else {
			others = append(others, p)
		}
	}
	return append(order, others...), len(order)
}

// compare returns a negative number if c does less harm than o.
func (c *preemptionCandidate) compare(o *preemptionCandidate) int {
	return cmp.Or(cmp.Compare(c.budgetViolations, o.budgetViolations),
		cmp.Compare(c.victims[0].Priority, o.victims[0].Priority), cmp.Compare(c.prioritySum(), o.prioritySum()),
		cmp.Compare(len(c.victims), len(o.victims)), cmp.Compare(o.victims[0].Started, c.victims[0].Started))
}

// prioritySum returns the sum of the victims' priorities, each shifted to be positive, so that fewer victims are
// better.
func (c *preemptionCandidate) prioritySum() int64 {
	var sum int64
	for _, v := range c.victims {
		sum += int64(v.Priority) - math.MinInt32
	}
	return sum
}
