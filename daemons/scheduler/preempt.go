package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/scheduler/plugin"
)

// Preemption is the pods that must go from a node for a more important one.
type Preemption struct {
	Node    *plugin.Node // nil: it would not help
	Victims []*plugin.Pod
	Reason  string // when it would not help
}

// candidateLimit bounds how many nodes are tried: the best of many is worth no more.
const candidateLimit = 100

// Preempt chooses the node on which the least harm makes room for the pod: fewest
// broken disruption budgets, then the least important victims, the fewest, and those
// that have run for the shortest time. refused is what Place said.
func Preempt(pod *plugin.Pod, s *plugin.Snapshot, refused Placement, budgets []*policyv1.PodDisruptionBudget) Preemption {
	if policy := pod.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return Preemption{Reason: "not eligible due to preemptionPolicy=Never."}
	}
	if leaving(pod, s) {
		return Preemption{Reason: "not eligible due to a terminating pod on the nominated node."}
	}
	var best *sacrifice
	hopeless := 0
	for i, n := range refused.Helpable {
		if i == candidateLimit {
			break
		}
		c := sacrificeOn(pod, s, n, budgets)
		if c == nil {
			hopeless++
		} else if best == nil || c.compare(best) < 0 {
			best = c
		}
	}
	if best != nil {
		return Preemption{Node: best.node, Victims: best.victims}
	}
	var parts []string
	if hopeless > 0 {
		parts = append(parts, fmt.Sprintf("%d No preemption victims found for incoming pods", hopeless))
	}
	if rest := refused.Looked - len(refused.Helpable); rest > 0 {
		parts = append(parts, fmt.Sprintf("%d Preemption is not helpful for scheduling", rest))
	}
	return Preemption{Reason: fmt.Sprintf("0/%d nodes are available: %s.", refused.Looked, strings.Join(parts, ", "))}
}

// leaving says whether pods are going already from the node that is promised to the pod.
func leaving(pod *plugin.Pod, s *plugin.Snapshot) bool {
	if pod.Status.NominatedNodeName == "" {
		return false
	}
	for _, n := range s.Nodes {
		if n.Name != pod.Status.NominatedNodeName {
			continue
		}
		for _, p := range n.Pods {
			if p.DeletionTimestamp != nil && p.Priority < pod.Priority {
				return true
			}
		}
	}
	return false
}

// sacrifice is what one node would cost.
type sacrifice struct {
	node    *plugin.Node
	victims []*plugin.Pod
	broken  int // disruption budgets
}

// sacrificeOn takes all less important pods off a node and puts back, the most
// important first, those that can stay; nil when even that makes no room.
func sacrificeOn(pod *plugin.Pod, s *plugin.Snapshot, node *plugin.Node, budgets []*policyv1.PodDisruptionBudget) *sacrifice {
	var lower []*plugin.Pod
	bare := node
	for _, p := range node.Pods {
		if p.Priority < pod.Priority {
			lower = append(lower, p)
			bare = bare.Without(p)
		}
	}
	if len(lower) == 0 || !fits(pod, s, node, bare) {
		return nil
	}
	slices.SortStableFunc(lower, func(a, b *plugin.Pod) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), started(a).Compare(started(b)))
	})
	breaks := breaking(lower, budgets)
	slices.SortStableFunc(lower, func(a, b *plugin.Pod) int {
		return cmp.Compare(btoi(breaks[b]), btoi(breaks[a]))
	})
	out := &sacrifice{node: node}
	for _, p := range lower {
		if with := bare.With(p); fits(pod, s, node, with) {
			bare = with
			continue
		}
		out.victims = append(out.victims, p)
		out.broken += btoi(breaks[p])
	}
	return out
}

func fits(pod *plugin.Pod, s *plugin.Snapshot, old, next *plugin.Node) bool {
	var p Placement
	return p.passes(next, prepare(pod, s.Replace(old, next)))
}

// breaking says which pods cannot be spared by their disruption budgets, if they were to
// go in this order.
func breaking(pods []*plugin.Pod, budgets []*policyv1.PodDisruptionBudget) map[*plugin.Pod]bool {
	out := map[*plugin.Pod]bool{}
	allowed := map[*policyv1.PodDisruptionBudget]int32{}
	for _, b := range budgets {
		allowed[b] = b.Status.DisruptionsAllowed
	}
	for _, p := range pods {
		for _, b := range budgets {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err != nil || b.Namespace != p.Namespace || selector.Empty() || !selector.Matches(labels.Set(p.Labels)) {
				continue
			}
			if _, going := b.Status.DisruptedPods[p.Name]; going {
				continue
			}
			if allowed[b]--; allowed[b] < 0 {
				out[p] = true
			}
		}
	}
	return out
}

// compare is negative when c does less harm than o.
func (c *sacrifice) compare(o *sacrifice) int {
	return cmp.Or(
		cmp.Compare(c.broken, o.broken),
		cmp.Compare(c.worst(), o.worst()),
		cmp.Compare(c.sum(), o.sum()),
		cmp.Compare(len(c.victims), len(o.victims)),
		o.oldest().Compare(c.oldest()),
	)
}

// worst is the highest priority among the victims, sum that of all, each made positive.
func (c *sacrifice) worst() int32 {
	top := int32(math.MinInt32)
	for _, v := range c.victims {
		top = max(top, v.Priority)
	}
	return top
}

func (c *sacrifice) sum() int64 {
	var sum int64
	for _, v := range c.victims {
		sum += int64(v.Priority) - math.MinInt32
	}
	return sum
}

// oldest is the earliest start among the most important victims.
func (c *sacrifice) oldest() time.Time {
	var out time.Time
	worst := c.worst()
	for _, v := range c.victims {
		if t := started(v); v.Priority == worst && (out.IsZero() || t.Before(out)) {
			out = t
		}
	}
	return out
}

func started(p *plugin.Pod) time.Time {
	if p.Status.StartTime != nil {
		return p.Status.StartTime.Time
	}
	return p.CreationTimestamp.Time
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
