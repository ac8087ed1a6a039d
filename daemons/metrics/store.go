package metrics

import (
	"sync"
	"time"
)

// State is what is known of a node. It is not changed once it is made.
type State struct {
	Came time.Time // when the node last answered
	Node Pair
	Pods map[string]PodState // by namespace/name
}

// PodState is what is known of a pod.
type PodState struct {
	UID        string
	Containers []ContainerState // those that run
}

// ContainerState is what is known of a container.
type ContainerState struct {
	Name string
	Pair
}

// next returns the state after an answer that came at a time.
func (s *State) next(a answer, came time.Time, interval time.Duration) *State {
	out := &State{Came: came, Pods: make(map[string]PodState, len(a.pods))}
	var was State
	if s != nil {
		was = *s
	}
	if p, ok := a.node.point(came); ok {
		out.Node = was.Node.Next(p, interval)
	}
	for key, r := range a.pods {
		before := was.Pods[key]
		if before.UID != r.uid {
			before = PodState{} // another pod, that has the name now
		}
		pod := PodState{UID: r.uid}
		for i := range r.containers {
			if p, ok := r.containers[i].point(came); ok {
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

// store holds the state of every node. What it gives away is safe to read.
type store struct {
	interval time.Duration

	mu    sync.RWMutex
	nodes map[string]*State
}

func newStore(interval time.Duration) *store {
	return &store{interval: interval, nodes: map[string]*State{}}
}

// staleAfter is how many intervals a node's last answer is good for, and leastStale how long at least: one may be lost,
// and the next one take its time.
const (
	staleAfter = 3
	leastStale = 10 * time.Second
)

// node returns what is known of a node; nil when it has not answered for long.
func (s *store) node(name string, now time.Time) *State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	state := s.nodes[name]
	if state == nil || now.Sub(state.Came) > max(staleAfter*s.interval, leastStale) {
		return nil
	}
	return state
}

func (s *store) answered(name string, a answer, came time.Time) {
	s.mu.RLock()
	was := s.nodes[name] // nobody else writes it: a node is asked once at a time
	s.mu.RUnlock()
	next := was.next(a, came, s.interval)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[name] = next
}

func (s *store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}
