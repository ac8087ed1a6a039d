package taint

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// since is when taints that do not say when they were added were first seen. Those that people put on nodes mostly do
// not, and pods that tolerate them for a while are to have that while.
type since struct {
	mu   sync.Mutex
	seen map[string]map[named]time.Time // by node
}

type named struct{ key, value string }

// date returns a node's taints with the times that they do not have themselves, and forgets those of taints that are
// gone.
func (s *since) date(node string, taints []corev1.Taint, now time.Time) []corev1.Taint {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, is := s.seen[node], map[named]time.Time{}
	taints = slices.Clone(taints)
	for i := range taints {
		if taints[i].TimeAdded != nil {
			continue
		}
		name := named{taints[i].Key, taints[i].Value}
		at, known := was[name]
		if !known {
			at = now
		}
		is[name] = at
		taints[i].TimeAdded = &metav1.Time{Time: at}
	}
	switch {
	case len(is) == 0:
		delete(s.seen, node)
	case s.seen == nil:
		s.seen = map[string]map[named]time.Time{node: is}
	default:
		s.seen[node] = is
	}
	return taints
}

// forget drops what is known of a node that is gone.
func (s *since) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, node)
}

// dated returns the taints of a node by which pods are evicted, each with when it was added or first seen.
func (t *controller) dated(n *corev1.Node) []corev1.Taint {
	return t.since.date(n.Name, noExecute(n), t.Now())
}
