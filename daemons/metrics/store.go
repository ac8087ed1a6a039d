package metrics

import (
	"sync"
	"time"
)

// State holds what is known about a node. It is immutable.
type State struct {
	AnsweredAt time.Time // when the node last answered
	Node       Pair
	Pods       map[string]PodState // by namespace/name
}

// PodState holds what is known about a pod.
type PodState struct {
	UID        string
	Containers []ContainerState // running containers
}

// ContainerState holds what is known about a container.
type ContainerState struct {
	Name string
	Pair
}

// next returns the state after an answer that arrived at came.
func (s *State) next(a answer, came time.Time, interval time.Duration) *State {
	out := &State{AnsweredAt: came, Pods: make(map[string]PodState, len(a.pods))}
	var old State
	if s != nil {
		old = *s
	}
	if p, ok := a.node.toPoint(came); ok {
		out.Node = old.Node.Next(p, interval)
	}
	for key, r := range a.pods {
		before := old.Pods[key]
		if before.UID != r.uid {
			before = PodState{} // another pod that now has the name
		}
		pod := PodState{UID: r.uid}
		for i := range r.containers {
			if p, ok := r.containers[i].toPoint(came); ok {
				name := r.containers[i].name
				pod.Containers = append(pod.Containers, ContainerState{name, before.container(name).Next(p, interval)})
			}
		}
		if len(pod.Containers) > 0 {
			out.Pods[key] = pod
		}
	}
	return out
}

func (p PodState) container(name string) Pair {
	for _, c := range p.Containers {
		if c.Name == name {
			return c.Pair
		}
	}
	return Pair{}
}

// store holds the state of every node. Returned states are safe to read.
type store struct {
	interval time.Duration
	history  *history

	mu    sync.RWMutex
	nodes map[string]*State
}

func newStore(interval time.Duration) *store {
	return &store{interval: interval, history: newHistory(maxHistoryBytes), nodes: map[string]*State{}}
}

// staleAfter is the number of intervals for which a node's last answer is valid, and minStaleAge the minimum time. One
// answer may be lost, and the next may be slow.
const (
	staleAfter  = 3
	minStaleAge = 10 * time.Second
)

// node returns the state of a node. It returns nil if the node has not answered recently.
func (s *store) node(name string, now time.Time) *State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	state := s.nodes[name]
	if state == nil || now.Sub(state.AnsweredAt) > max(staleAfter*s.interval, minStaleAge) {
		return nil
	}
	return state
}

func (s *store) record(name string, a answer, came time.Time) {
	s.mu.RLock()
	before := s.nodes[name] // only this goroutine writes it: there is one request per node at a time
	s.mu.RUnlock()
	next := before.next(a, came, s.interval)
	s.history.recordState(name, next)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[name] = next
}

func (s *store) delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}
