package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/scheduler/cluster"
)

// Preemption is the pods that must go from a node for a more important one.
type Preemption struct {
	Node    *cluster.Node // nil: it would not help
	Victims []*cluster.Pod
	Reason  string // when it would not help
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

// preempt chooses the node on which the least harm makes room for the pod: fewest broken disruption budgets, then the least
// important victims, the fewest, and those that have run for the shortest time. refused is what place said.
func (s *search) preempt(refused Placement, known budgets) Preemption {
	pod := s.task.Pod
	switch {
	case s.profile.Preempt.Off:
		return Preemption{}
	case pod.Never:
		return Preemption{Reason: "not eligible due to preemptionPolicy=Never."}
	case s.leaving():
		return Preemption{Reason: "not eligible due to a terminating pod on the nominated node."}
	}
	var best *sacrifice
	hopeless, found := 0, 0
	enough := max(refused.Nodes*s.profile.Preempt.Percent/100, s.profile.Preempt.AtLeast)
	for _, n := range refused.Open {
		c := s.sacrificeOn(n, known)
		if c == nil {
			hopeless++
			continue
		}
		if best == nil || c.compare(best) < 0 {
			best = c
		}
		if found++; found == enough {
			break
		}
	}
	if best != nil {
		return Preemption{Node: best.node, Victims: best.victims}
	}
	var parts []string
	if hopeless > 0 {
		parts = append(parts, fmt.Sprintf("%d No preemption victims found for incoming pod", hopeless))
	}
	if rest := refused.Nodes - len(refused.Open); rest > 0 {
		parts = append(parts, fmt.Sprintf("%d Preemption is not helpful for scheduling", rest))
	}
	return Preemption{Reason: fmt.Sprintf("0/%d nodes are available: %s.", refused.Nodes, strings.Join(parts, ", "))}
}

// leaving says whether pods are going already from the node that is promised to the pod, if it might do at all.
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
	return slices.ContainsFunc(n.Pods, func(p *cluster.Pod) bool { return p.Priority < s.task.Pod.Priority && p.Preempted })
}

// sacrifice is what one node would cost.
type sacrifice struct {
	node    *cluster.Node
	victims []*cluster.Pod // the most important first
	broken  int            // victims that a disruption budget protects
}

// sacrificeOn takes all less important pods off a node and puts back, those first that budgets protect and the more important
// first, who can stay; nil when even that makes no room, or nobody has to go.
func (s *search) sacrificeOn(n *cluster.Node, known budgets) *sacrifice {
	var lower []*cluster.Pod
	for _, p := range n.Pods {
		if p.Priority < s.task.Pod.Priority {
			lower = append(lower, p)
		}
	}
	if len(lower) == 0 {
		return nil
	}
	slices.SortStableFunc(lower, importance)
	defer s.task.Hold(lower)()
	for _, p := range lower {
		s.task.Remove(p)
	}
	var out *sacrifice
	gone := lower
	if s.judge(n) == nil {
		out = &sacrifice{node: n}
		protected, others := known.protected(lower)
		gone = nil
		for i, p := range append(protected, others...) {
			if s.task.Add(p, n); s.judge(n) == nil {
				continue
			}
			s.task.Remove(p)
			gone = append(gone, p)
			out.victims = append(out.victims, p)
			if i < len(protected) {
				out.broken++
			}
		}
	}
	for _, p := range gone {
		s.task.Add(p, n)
	}
	if out == nil || len(out.victims) == 0 {
		return nil
	}
	slices.SortStableFunc(out.victims, importance)
	return out
}

// importance orders pods by priority, then by who runs longer.
func importance(a, b *cluster.Pod) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Started, b.Started), cmp.Compare(a.UID, b.UID))
}

// protected parts the pods that cannot be spared by their disruption budgets, when those before them have gone, from the
// others. Pods whose eviction a budget has counted already do not count again.
func (b budgets) protected(pods []*cluster.Pod) (violating, others []*cluster.Pod) {
	left := map[*budget]int32{}
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
			violating = append(violating, p)
		} else {
			others = append(others, p)
		}
	}
	return violating, others
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
