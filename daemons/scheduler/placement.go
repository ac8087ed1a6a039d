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

	Nodes         int                     // number of nodes
	RefusalForAll *plugin.Refusal         // refusal for all nodes at once
	Refusals      map[*plugin.Refusal]int // by refusal: number of nodes
	Resolvable    []*cluster.Node         // refused, but might fit if pods were removed; nil if there is a node
}

// searchBuffers holds slices with an entry per node, which are reused between searches.
type searchBuffers struct {
	fit, resolvable []*cluster.Node
	points          []int64
}

var bufferPool = sync.Pool{New: func() any { return new(searchBuffers) }}

// search finds a node for one pod.
type search struct {
	profile       *profile.Profile
	task          *plugin.Task
	refusalForAll *plugin.Refusal
	nodeOnly      []plugin.Check // checks that depend only on the node object
	checks        []plugin.Check
	verdicts      *verdicts
}

// verdicts caches the results of checks that depend only on the node object, for pods of one shape.
type verdicts struct {
	epoch   []uint64
	refusal []*plugin.Refusal
}

func newSearch(by *profile.Profile, c *cluster.Cluster, pod *cluster.Pod, cached *verdicts) *search {
	s := &search{profile: by, task: &plugin.Task{Cluster: c, Pod: pod, Args: by.Args}, verdicts: cached}
	if s.verdicts == nil {
		s.verdicts = &verdicts{}
	}
	for _, f := range by.Filters {
		if f.RefuseAll != nil {
			if s.refusalForAll = f.RefuseAll(s.task); s.refusalForAll != nil {
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
		} else if f.NeedsOnlyNode {
			s.nodeOnly = append(s.nodeOnly, check)
		} else {
			s.checks = append(s.checks, check)
		}
	}
	return s
}

// filter returns why a node does not fit in its present state, or nil.
func (s *search) filter(n *cluster.Node) *plugin.Refusal {
	if r := s.checkNodeObject(n); r != nil {
		return r
	}
	for _, check := range s.checks {
		if r := check(n); r != nil {
			return r
		}
	}
	return nil
}

// checkNodeObject runs the checks that depend only on the node object, once for each version of it.
func (s *search) checkNodeObject(n *cluster.Node) *plugin.Refusal {
	if s.task.Pod.OnlyNamed { // not worth caching for so few nodes
		return s.runNodeOnlyChecks(n)
	}
	v := s.verdicts
	if n.Index < len(v.epoch) && v.epoch[n.Index] == n.Epoch {
		return v.refusal[n.Index]
	}
	if more := n.Index + 1 - len(v.epoch); more > 0 {
		v.epoch = append(v.epoch, make([]uint64, more)...)
		v.refusal = append(v.refusal, make([]*plugin.Refusal, more)...)
	}
	out := s.runNodeOnlyChecks(n)
	v.epoch[n.Index], v.refusal[n.Index] = n.Epoch, out
	return out
}

func (s *search) runNodeOnlyChecks(n *cluster.Node) *plugin.Refusal {
	for _, check := range s.nodeOnly {
		if r := check(n); r != nil {
			return r
		}
	}
	return nil
}

// checkNode returns why a node does not fit, or nil. It checks the node with its nominated pods of the same or a higher
// priority, since they will come, and without them, since they may not.
func (s *search) checkNode(n *cluster.Node) *plugin.Refusal {
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

// selectNode selects a node: filters determine the nodes that fit, and scores select among them. Of equal nodes it
// takes the first one counted from start. It returns where the next search should start.
func (s *search) selectNode(start int) (Placement, int) {
	nodes := s.task.Nodes()
	p := Placement{Nodes: len(nodes)}
	if s.refusalForAll != nil {
		p.RefusalForAll = s.refusalForAll
		return p, start
	}
	if len(nodes) == 0 {
		return p, 0
	}
	if nominated := s.task.Node(s.task.Pod.Nominated); nominated != nil && s.checkNode(nominated) == nil {
		p.Node = nominated // preemption has made room there for it
		return p, start
	}
	if s.task.Pod.OnlyNamed {
		return s.selectNamedNode(p), start
	}
	enough := nodesToFind(len(nodes), s.profile.Percent)
	use := bufferPool.Get().(*searchBuffers)
	defer bufferPool.Put(use)
	fit := use.fit[:0]
	p.Resolvable = use.resolvable[:0]
	start %= len(nodes)
	looked := 0
	for ; looked < len(nodes) && len(fit) < enough; looked++ {
		n := nodes[(start+looked)%len(nodes)]
		if r := s.checkNode(n); r != nil {
			p.addRefusal(n, r)
		} else {
			fit = append(fit, n)
		}
	}
	p.Node = s.bestNode(fit, use)
	use.fit, use.resolvable = fit, nil // if no node fits, the caller uses p.Resolvable
	if p.Node != nil {
		use.resolvable, p.Resolvable = p.Resolvable, nil
	}
	if looked == len(nodes) {
		looked = 1 // all were checked; shift the order by one for the next search
	}
	return p, (start + looked) % len(nodes)
}

// selectNamedNode checks only the nodes that the pod's required affinity names.
func (s *search) selectNamedNode(p Placement) Placement {
	var fit []*cluster.Node
	looked := map[*cluster.Node]bool{}
	for _, name := range s.task.Pod.NodeNames {
		n := s.task.Node(name)
		if n == nil || looked[n] {
			continue
		}
		looked[n] = true
		if r := s.checkNode(n); r != nil {
			p.addRefusal(n, r)
		} else {
			fit = append(fit, n)
		}
	}
	if p.Node = s.bestNode(fit, new(searchBuffers)); p.Node == nil && len(looked) < p.Nodes {
		if p.Refusals == nil {
			p.Refusals = map[*plugin.Refusal]int{}
		}
		p.Refusals[plugin.NodeNotNamed] += p.Nodes - len(looked)
	} else if p.Node != nil {
		p.Resolvable = nil
	}
	return p
}

func (p *Placement) addRefusal(n *cluster.Node, r *plugin.Refusal) {
	if p.Refusals == nil {
		p.Refusals = map[*plugin.Refusal]int{}
	}
	p.Refusals[r]++
	if !r.IsFinal {
		p.Resolvable = append(p.Resolvable, n)
	}
}

// In a large cluster, it suffices to choose among some nodes: checking all would cost more than the best node is worth.
const (
	minNodesToFind = 100
	minNodePercent = 5 // percent of the nodes
)

func nodesToFind(nodes, percent int) int {
	if nodes <= minNodesToFind || percent >= 100 {
		return max(nodes, 1)
	}
	if percent <= 0 {
		percent = max(50-nodes/125, minNodePercent)
	}
	return max(nodes*percent/100, minNodesToFind)
}

func (s *search) bestNode(fit []*cluster.Node, use *searchBuffers) *cluster.Node {
	switch len(fit) {
	case 0:
		return nil
	case 1:
		return fit[0]
	}
	use.points = slices.Grow(use.points[:0], 2*len(fit))[:2*len(fit)]
	total := s.totalScores(fit, use.points, nil)
	top := 0
	for i := range fit {
		if total[i] > total[top] {
			top = i
		}
	}
	return fit[top]
}

// totalScores returns the total score of each node in fit. points provides memory for two numbers per node. each, if
// not nil, is called with the scores of every plugin.
func (s *search) totalScores(fit []*cluster.Node, points []int64, each func(name string, scores []int64)) []int64 {
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
	if p.RefusalForAll != nil {
		return append(out, p.RefusalForAll.Plugin)
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
	if p.RefusalForAll != nil {
		return fmt.Sprintf("0/%d nodes are available: %s.", p.Nodes, strings.Join(p.RefusalForAll.Reasons, ", "))
	}
	return refusalMessage(p.Nodes, p.Refusals)
}

// refusalMessage returns a message with the number of nodes for each reason.
func refusalMessage(nodes int, refusals map[*plugin.Refusal]int) string {
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
