package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
	"clusterctl/daemons/scheduler/profile"
)

// Placement is where a pod should go, or why it can go nowhere.
type Placement struct {
	Node *cluster.Node // nil: nowhere

	Nodes      int                     // how many there are
	Everywhere *plugin.Refusal         // that was given for all of them at once
	Refusals   map[*plugin.Refusal]int // how many nodes each was given for
	Open       []*cluster.Node         // refused, but might do if pods were removed; nil when there is a node
}

// lists are as long as a cluster has nodes, and are used for one search after the other.
type lists struct {
	fit, open []*cluster.Node
	points    []int64
}

var spare = sync.Pool{New: func() any { return new(lists) }}

// search is the work of finding a node for one pod.
type search struct {
	profile    *profile.Profile
	task       *plugin.Task
	everywhere *plugin.Refusal
	nodeOnly   []plugin.Check // that depend on the node object alone
	checks     []plugin.Check
	known      *verdicts
}

// verdicts are what the checks of node objects alone have said for pods of one shape.
type verdicts struct {
	epoch   []uint64
	refusal []*plugin.Refusal
}

func newSearch(by *profile.Profile, c *cluster.Cluster, pod *cluster.Pod, known *verdicts) *search {
	s := &search{profile: by, task: &plugin.Task{Cluster: c, Pod: pod, Args: by.Args}, known: known}
	if s.known == nil {
		s.known = &verdicts{}
	}
	for _, f := range by.Filters {
		if f.Everywhere != nil {
			if s.everywhere = f.Everywhere(s.task); s.everywhere != nil {
				return s
			}
		}
	}
	for _, f := range by.Filters {
		if f.Filter == nil {
			continue
		}
		if check := f.Filter(s.task); check == nil {
			continue
		} else if f.NodeOnly {
			s.nodeOnly = append(s.nodeOnly, check)
		} else {
			s.checks = append(s.checks, check)
		}
	}
	return s
}

// filter asks whether a node will do as it is now.
func (s *search) filter(n *cluster.Node) *plugin.Refusal {
	if r := s.object(n); r != nil {
		return r
	}
	for _, check := range s.checks {
		if r := check(n); r != nil {
			return r
		}
	}
	return nil
}

// object asks what depends on the node object alone, once for each that it becomes.
func (s *search) object(n *cluster.Node) *plugin.Refusal {
	if s.task.Pod.OnlyNamed { // nobody else asks about so few nodes again
		return s.ask(n)
	}
	v := s.known
	if n.Index < len(v.epoch) && v.epoch[n.Index] == n.Epoch {
		return v.refusal[n.Index]
	}
	if more := n.Index + 1 - len(v.epoch); more > 0 {
		v.epoch = append(v.epoch, make([]uint64, more)...)
		v.refusal = append(v.refusal, make([]*plugin.Refusal, more)...)
	}
	out := s.ask(n)
	v.epoch[n.Index], v.refusal[n.Index] = n.Epoch, out
	return out
}

func (s *search) ask(n *cluster.Node) *plugin.Refusal {
	for _, check := range s.nodeOnly {
		if r := check(n); r != nil {
			return r
		}
	}
	return nil
}

// judge asks whether a node will do with the pods of the same or a higher priority that are promised it, for they will
// come, and without them, for they may not.
func (s *search) judge(n *cluster.Node) *plugin.Refusal {
	if len(n.Nominated) == 0 {
		return s.filter(n)
	}
	var added []*cluster.Pod
	for _, p := range n.Nominated {
		if p.UID != s.task.Pod.UID && p.Priority >= s.task.Pod.Priority {
			s.task.Add(p, n)
			added = append(added, p)
		}
	}
	var r *plugin.Refusal
	if len(added) > 0 {
		r = s.filter(n)
		for _, p := range slices.Backward(added) {
			s.task.Remove(p)
		}
	}
	if r == nil {
		r = s.filter(n)
	}
	return r
}

// place chooses a node: the filters leave those that will do, the scores choose among them, and of equals it is the one
// that comes first from start. It returns where the next search should begin.
func (s *search) place(start int) (Placement, int) {
	nodes := s.task.Nodes()
	p := Placement{Nodes: len(nodes)}
	if s.everywhere != nil {
		p.Everywhere = s.everywhere
		return p, start
	}
	if len(nodes) == 0 {
		return p, 0
	}
	if nominated := s.task.Node(s.task.Pod.Nominated); nominated != nil && s.judge(nominated) == nil {
		p.Node = nominated // others made room there for it
		return p, start
	}
	if s.task.Pod.OnlyNamed {
		return s.placeNamed(p), start
	}
	enough := enoughNodes(len(nodes), s.profile.Percent)
	use := spare.Get().(*lists)
	defer spare.Put(use)
	fit := use.fit[:0]
	p.Open = use.open[:0]
	start %= len(nodes)
	looked := 0
	for ; looked < len(nodes) && len(fit) < enough; looked++ {
		n := nodes[(start+looked)%len(nodes)]
		if r := s.judge(n); r != nil {
			p.refuse(n, r)
		} else {
			fit = append(fit, n)
		}
	}
	p.Node = s.best(fit, use)
	use.fit, use.open = fit, nil // who finds nothing goes on with the open ones
	if p.Node != nil {
		use.open, p.Open = p.Open, nil
	}
	if looked == len(nodes) {
		looked = 1 // all were looked at, but not always in the same order
	}
	return p, (start + looked) % len(nodes)
}

// placeNamed looks at the nodes alone that the pod's required affinity names.
func (s *search) placeNamed(p Placement) Placement {
	var fit []*cluster.Node
	looked := map[*cluster.Node]bool{}
	for _, name := range s.task.Pod.NodeNames {
		n := s.task.Node(name)
		if n == nil || looked[n] {
			continue
		}
		looked[n] = true
		if r := s.judge(n); r != nil {
			p.refuse(n, r)
		} else {
			fit = append(fit, n)
		}
	}
	if p.Node = s.best(fit, new(lists)); p.Node == nil && len(looked) < p.Nodes {
		if p.Refusals == nil {
			p.Refusals = map[*plugin.Refusal]int{}
		}
		p.Refusals[plugin.Unnamed] += p.Nodes - len(looked)
	} else if p.Node != nil {
		p.Open = nil
	}
	return p
}

func (p *Placement) refuse(n *cluster.Node, r *plugin.Refusal) {
	if p.Refusals == nil {
		p.Refusals = map[*plugin.Refusal]int{}
	}
	p.Refusals[r]++
	if !r.Final {
		p.Open = append(p.Open, n)
	}
}

// In a large cluster it is enough to choose among some: looking at all would cost more than the best place is worth.
const (
	lookAtAll = 100
	atLeast   = 5 // percent
)

func enoughNodes(nodes, percent int) int {
	if nodes <= lookAtAll || percent >= 100 {
		return max(nodes, 1)
	}
	if percent <= 0 {
		percent = max(50-nodes/125, atLeast)
	}
	return max(nodes*percent/100, lookAtAll)
}

func (s *search) best(fit []*cluster.Node, use *lists) *cluster.Node {
	switch len(fit) {
	case 0:
		return nil
	case 1:
		return fit[0]
	}
	use.points = slices.Grow(use.points[:0], 2*len(fit))[:2*len(fit)]
	total := s.scores(fit, use.points, nil)
	top := 0
	for i := range fit {
		if total[i] > total[top] {
			top = i
		}
	}
	return fit[top]
}

// scores rates nodes that will do, in points, which has two places for each of them; each, if not nil, is told what
// every plugin gave.
func (s *search) scores(fit []*cluster.Node, points []int64, each func(name string, scores []int64)) []int64 {
	total, scores := points[:len(fit)], points[len(fit):]
	clear(total)
	for _, score := range s.profile.Scores {
		rate := score.Score(s.task, fit)
		if rate == nil {
			continue
		}
		for i, n := range fit {
			scores[i] = rate(n)
		}
		if score.Normalize != nil {
			score.Normalize(scores)
		}
		if each != nil {
			each(score.Name, scores)
		}
		for i := range fit {
			total[i] += score.Weight * scores[i]
		}
	}
	return total
}

// Plugins are those that refused, each once.
func (p *Placement) Plugins() []string {
	var out []string
	if p.Everywhere != nil {
		return append(out, p.Everywhere.Plugin)
	}
	for r := range p.Refusals {
		if !slices.Contains(out, r.Plugin) {
			out = append(out, r.Plugin)
		}
	}
	slices.Sort(out)
	return out
}

// Explain says why no node would do, as kubectl describe shows it.
func (p *Placement) Explain() string {
	if p.Nodes == 0 {
		return "no nodes available to schedule pods"
	}
	if p.Everywhere != nil {
		return fmt.Sprintf("0/%d nodes are available: %s.", p.Nodes, strings.Join(p.Everywhere.Reasons, ", "))
	}
	return explain(p.Nodes, p.Refusals)
}

// explain says of so many nodes for how many each reason holds.
func explain(nodes int, refusals map[*plugin.Refusal]int) string {
	counts := map[string]int{}
	for r, n := range refusals {
		for _, reason := range r.Reasons {
			counts[reason] += n
		}
	}
	list := make([]string, 0, len(counts))
	for reason, n := range counts {
		list = append(list, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(list)
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(list, ", "))
}
