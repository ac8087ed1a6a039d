package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"clusterctl/daemons/scheduler/plugin"
)

// Placement is where a pod should go, or why it can go nowhere.
type Placement struct {
	Node *plugin.Node // nil: nowhere

	Looked   int            // how many nodes there are
	Reasons  map[string]int // how many nodes each reason was given for
	Filters  []string       // names of the filters that refused, each once
	Helpable []*plugin.Node // refused, but might do if pods were taken off
}

// Place chooses a node for a pod: the filters leave those that will do, the scores
// choose among them, and of equals the one that comes first from where the
// snapshot says to start.
func Place(pod *plugin.Pod, s *plugin.Snapshot) Placement {
	p := Placement{Looked: len(s.Nodes)}
	checks := prepare(pod, s)
	enough := enoughNodes(len(s.Nodes))
	fit := make([]*plugin.Node, 0, enough)
	for i := range s.Nodes {
		n := s.Nodes[(s.Start+i)%len(s.Nodes)]
		if p.passes(n, checks) {
			if fit = append(fit, n); len(fit) == enough {
				break
			}
		}
	}
	switch len(fit) {
	case 0:
		return p
	case 1:
		p.Node = fit[0]
	default:
		p.Node = best(pod, s, fit)
	}
	return p
}

type check struct {
	filter *plugin.Filter
	check  plugin.Check
}

func prepare(pod *plugin.Pod, s *plugin.Snapshot) []check {
	checks := make([]check, 0, len(plugin.Filters))
	for i := range plugin.Filters {
		if c := plugin.Filters[i].Prepare(pod, s); c != nil {
			checks = append(checks, check{&plugin.Filters[i], c})
		}
	}
	return checks
}

func (p *Placement) passes(n *plugin.Node, checks []check) bool {
	for _, c := range checks {
		reasons := c.check(n)
		if len(reasons) == 0 {
			continue
		}
		if p.Reasons == nil {
			p.Reasons = map[string]int{}
		}
		for _, r := range reasons {
			p.Reasons[r]++
		}
		if !slices.Contains(p.Filters, c.filter.Name) {
			p.Filters = append(p.Filters, c.filter.Name)
		}
		if c.filter.Helpable {
			p.Helpable = append(p.Helpable, n)
		}
		return false
	}
	return true
}

// In a large cluster it is enough to choose among some: looking at all would cost
// more than the best place is worth.
const (
	lookAtAll = 100
	atLeast   = 5 // percent
)

func enoughNodes(nodes int) int {
	if nodes <= lookAtAll {
		return max(nodes, 1)
	}
	percent := max(50-nodes/125, atLeast)
	return max(nodes*percent/100, lookAtAll)
}

func best(pod *plugin.Pod, s *plugin.Snapshot, fit []*plugin.Node) *plugin.Node {
	total, scores := make([]int64, len(fit)), make([]int64, len(fit))
	for i := range plugin.Scores {
		score := &plugin.Scores[i]
		rate := score.Prepare(pod, s)
		if rate == nil {
			continue
		}
		for j, n := range fit {
			scores[j] = rate(n)
		}
		if score.Normalize != nil {
			score.Normalize(scores)
		}
		for j := range fit {
			total[j] += score.Weight * scores[j]
		}
	}
	top := 0
	for i := range fit {
		if total[i] > total[top] {
			top = i
		}
	}
	return fit[top]
}

// Explain says why no node would do, as kubectl describe shows it.
func (p *Placement) Explain() string {
	if p.Looked == 0 {
		return "no nodes available to schedule pods"
	}
	list := make([]string, 0, len(p.Reasons))
	for reason, n := range p.Reasons {
		list = append(list, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(list)
	return fmt.Sprintf("0/%d nodes are available: %s.", p.Looked, strings.Join(list, ", "))
}
