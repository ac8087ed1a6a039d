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

// Preemption is the pods that must go from a node for a more important one.
type Preemption struct {
	Node    *cluster.Node // nil: it would not help
	Victims []*cluster.Pod
	Reason  string // when it would not help
	// Hopeless says that no preemption helps, so that there is nothing to wait for on a node that is promised to the
	// pod.
	Hopeless bool
}

// budgets are the disruption budgets by namespace and name.
type budgets map[string]map[string]*budget

// budget is a disruption budget.
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

func (b budgets) drop(o *policyv1.PodDisruptionBudget) {
	if delete(b[o.Namespace], o.Name); len(b[o.Namespace]) == 0 {
		delete(b, o.Namespace)
	}
}

// preempt chooses the node on which the least harm makes room for the pod: fewest broken disruption budgets, then the
// least important victims, the fewest, and those that have run for the shortest time. refused is what place said.
func (s *search) preempt(refused Placement, known budgets) Preemption {
	pod := s.task.Pod
	switch {
	case s.profile.Preempt.Off:
		return Preemption{Hopeless: true}
	case pod.Never:
		return Preemption{Reason: "not eligible due to preemptionPolicy=Never."}
	case s.leaving():
		return Preemption{Reason: "not eligible due to a terminating pod on the nominated node."}
	}
	var best sacrifice
	var try scratch
	hopeless, found, breaking := map[*plugin.Refusal]int{}, 0, 0
	enough := max(len(refused.Open)*s.profile.Preempt.Percent/100, s.profile.Preempt.AtLeast)
	for _, n := range refused.Open {
		c := s.sacrificeOn(n, known, &try)
		if c.node == nil {
			hopeless[c.why]++
			continue
		}
		if c.broken > 0 {
			breaking++
		}
		if best.node == nil || c.compare(&best) < 0 && (c.broken == 0 || breaking <= enough) {
			c.victims = append(best.victims[:0], c.victims...) // those of the next node come where these are
			best = c
		}
		if found++; found >= enough && best.broken == 0 {
			break // one that breaks a disruption budget is taken only when all others do
		}
	}
	if best.node != nil {
		return Preemption{Node: best.node, Victims: best.victims}
	}
	if rest := refused.Nodes - len(refused.Open); rest > 0 {
		hopeless[notHelpful] = rest
	}
	return Preemption{Hopeless: true, Reason: explain(refused.Nodes, hopeless)}
}

// Why preemption does not help on a node, besides what refuses the pod even when all less important ones are gone.
var (
	noVictims  = &plugin.Refusal{Reasons: []string{"No preemption victims found for incoming pod"}}
	notHelpful = &plugin.Refusal{Reasons: []string{"Preemption is not helpful for scheduling"}}
)

// leaving reports whether pods are going already from the node that is promised to the pod, if it might do at all.
func (s *search) leaving() bool {
	n := s.task.Node(s.task.Pod.Nominated)
	if n == nil {
		return false
	}
	if s.everywhere != nil && s.everywhere.Final {
		return false
	}
	if s.task.Pod.OnlyNamed && !slices.Contains(s.task.Pod.NodeNames, n.Name) {
		return false
	}
	if s.everywhere == nil {
		if r := s.judge(n); r != nil && r.Final {
			return false
		}
	}
	return slices.ContainsFunc(
		n.Pods,
		func(p *cluster.Pod) bool { return p.Priority < s.task.Pod.Priority && p.Preempted },
	)
}

// scratch is lists that are filled anew for each node which is tried.
type scratch struct{ lower, order, gone []*cluster.Pod }

// sacrifice is what one node would cost.
type sacrifice struct {
	node    *cluster.Node   // nil: it would not help
	victims []*cluster.Pod  // the most important first
	broken  int             // victims that a disruption budget protects
	why     *plugin.Refusal // when it would not help
}

// sacrificeOn takes all less important pods off a node and puts back, those first that budgets protect and the more
// important first, who can stay. It would not help when even that makes no room, or nobody has to go. The victims are
// in try until it is used again.
func (s *search) sacrificeOn(n *cluster.Node, known budgets, try *scratch) sacrifice {
	lower := try.lower[:0]
	for _, p := range n.Pods {
		if p.Priority < s.task.Pod.Priority {
			lower = append(lower, p)
		}
	}
	try.lower = lower
	if len(lower) == 0 {
		return sacrifice{why: noVictims}
	}
	slices.SortStableFunc(lower, importance)
	s.task.Hold(lower)
	defer s.task.Release(lower)
	for _, p := range lower {
		s.task.Remove(p)
	}
	if why := s.judge(n); why != nil {
		for _, p := range lower {
			s.task.Add(p, n)
		}
		return sacrifice{why: why}
	}
	order, protected := known.protected(lower, try.order[:0])
	gone, broken := try.gone[:0], 0
	for i, p := range order {
		if s.task.Add(p, n); s.judge(n) == nil {
			continue
		}
		s.task.Remove(p)
		gone = append(gone, p)
		if i < protected {
			broken++
		}
	}
	try.order, try.gone = order, gone
	for _, p := range gone {
		s.task.Add(p, n)
	}
	if len(gone) == 0 {
		return sacrifice{why: noVictims}
	}
	slices.SortStableFunc(gone, importance)
	return sacrifice{node: n, victims: gone, broken: broken}
}

// importance orders pods by priority, then by who runs longer.
func importance(a, b *cluster.Pod) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Started, b.Started), cmp.Compare(a.UID, b.UID))
}

// protected orders pods so that those come first which cannot be spared by their disruption budgets, when those before
// them have gone, and says how many these are. Pods whose eviction a budget has counted already do not count again.
func (b budgets) protected(pods, order []*cluster.Pod) ([]*cluster.Pod, int) {
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
			if _, known := left[one]; !known {
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

// compare is negative when c does less harm than o.
func (c *sacrifice) compare(o *sacrifice) int {
	return cmp.Or(
		cmp.Compare(c.broken, o.broken),
		cmp.Compare(c.victims[0].Priority, o.victims[0].Priority),
		cmp.Compare(c.sum(), o.sum()),
		cmp.Compare(len(c.victims), len(o.victims)),
		cmp.Compare(o.victims[0].Started, c.victims[0].Started),
	)
}

// sum is of the victims' priorities, each made positive, so that fewer are better.
func (c *sacrifice) sum() int64 {
	var sum int64
	for _, v := range c.victims {
		sum += int64(v.Priority) - math.MinInt32
	}
	return sum
}
