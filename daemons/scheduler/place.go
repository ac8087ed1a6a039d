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

// Placement is the node for a pod, or the reasons why none fits.
type Placement struct {
	Node *cluster.Node // nil if no node fits

	Nodes      int                     // number of nodes
	Everywhere *plugin.Refusal         // refusal for all nodes at once
	Refusals   map[*plugin.Refusal]int // by refusal: number of nodes
	Open       []*cluster.Node         // refused, but might fit if pods were removed; nil if there is a node
}

// lists holds slices with an entry per node, which are reused between searches.
type lists struct {
	fit, open []*cluster.Node
	points    []int64
}

var spare = sync.Pool{New: func() any { return new(lists) }}

// search finds a node for one pod.
type search struct {
	profile    *profile.Profile
	task       *plugin.Task
	everywhere *plugin.Refusal
	nodeOnly   []plugin.Check // checks that depend only on the node object
	checks     []plugin.Check
	known      *verdicts
}

// verdicts caches the results of checks that depend only on the node object, for pods of one shape.
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

// filter returns why a node does not fit in its present state, or nil.
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

// object runs the checks that depend only on the node object, once for each version of it.
func (s *search) object(n *cluster.Node) *plugin.Refusal {
	if s.task.Pod.OnlyNamed { // not worth caching for so few nodes
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

// judge returns why a node does not fit, or nil. It checks the node with its nominated pods of the same or a higher
// priority, since they will come, and without them, since they may not.
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

// place selects a node: filters determine the nodes that fit, and scores select among them. Of equal nodes it takes the
// first one counted from start. It returns where the next search should start.
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
		p.Node = nominated // preemption has made room there for it
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
	use.fit, use.open = fit, nil // if no node fits, the caller uses p.Open
	if p.Node != nil {
		use.open, p.Open = p.Open, nil
	}
	if looked == len(nodes) {
		looked = 1 // all were checked; shift the order by one for the next search
	}
	return p, (start + looked) % len(nodes)
}

// placeNamed checks only the nodes that the pod's required affinity names.
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

// In a large cluster, it suffices to choose among some nodes: checking all would cost more than the best node is worth.
const (
	lookAtAll = 100
	atLeast   = 5 // percent of the nodes
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

// scores returns the total score of each node in fit. points provides memory for two numbers per node. each, if not
// nil, is called with the scores of every plugin.
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

// Plugins returns the names of the plugins that refused, each once.
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

// Explain returns why no node fits, in the form that kubectl describe shows.
func (p *Placement) Explain() string {
	if p.Nodes == 0 {
		return "no nodes available to schedule pods"
	}
	if p.Everywhere != nil {
		return fmt.Sprintf("0/%d nodes are available: %s.", p.Nodes, strings.Join(p.Everywhere.Reasons, ", "))
	}
	return explain(p.Nodes, p.Refusals)
}

// explain returns a message with the number of nodes for each reason.
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
