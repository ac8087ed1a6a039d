package taint

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// firstSeenTaints records when taints without a timeAdded were first seen. Taints that users add usually have none, and
// pods that tolerate them for a period must get that period.
type firstSeenTaints struct {
	mu   sync.Mutex
	seen map[string]map[taintKey]time.Time // by node
}

type taintKey struct{ key, value string }

// fillTimes returns a node's taints with missing times filled in. It removes the records of taints that are gone.
func (s *firstSeenTaints) fillTimes(node string, taints []corev1.Taint, now time.Time) []corev1.Taint {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := s.seen[node], map[taintKey]time.Time{}
	taints = slices.Clone(taints)
	for i := range taints {
		if taints[i].TimeAdded != nil {
			continue
		}
		name := taintKey{taints[i].Key, taints[i].Value}
		at, ok := before[name]
		if !ok {
			at = now
		}
		after[name] = at
		taints[i].TimeAdded = &metav1.Time{Time: at}
	}
	switch {
	case len(after) == 0:
		delete(s.seen, node)
	case s.seen == nil:
		s.seen = map[string]map[taintKey]time.Time{node: after}
	default:
		s.seen[node] = after
	}
	return taints
}

// delete removes the records of a deleted node.
func (s *firstSeenTaints) delete(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, node)
}

// datedTaints returns the NoExecute taints of a node, each with the time when it was added or first seen.
func (t *controller) datedTaints(n *corev1.Node) []corev1.Taint {
	return t.firstSeen.fillTimes(n.Name, noExecute(n), t.Now())
}
