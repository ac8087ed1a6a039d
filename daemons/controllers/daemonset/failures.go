package daemonset

import (
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Delays before a failed pod is replaced. The first failure on a node has no delay. Then the delay starts at firstWait
// and doubles with each failure, up to lastWait. After 2*lastWait without a failure, a node starts again.
const (
	firstWait = time.Second
	lastWait  = 15 * time.Minute
)

// failures records for each set and node when a pod last failed there. A pod that always fails at once is then not
// replaced in a tight loop.
type failures struct {
	mu   sync.Mutex
	sets map[string]failedSet // by the set's key
}

// failedSet holds the failures of one generation of a set: failures from before a change of the spec do not count.
type failedSet struct {
	of    edition
	nodes map[string]failure
}

type edition struct {
	uid        types.UID
	generation int64
}

func editionOf(set *appsv1.DaemonSet) edition { return edition{set.UID, set.Generation} }

type failure struct {
	at   time.Time     // when the last failed pod was replaced
	wait time.Duration // delay before the next failed pod is replaced
}

// waits returns the nodes on which a failed pod must not be replaced yet, each with the remaining time.
func (f *failures) waits(of *appsv1.DaemonSet, now time.Time) map[string]time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := keyOf(of)
	set := f.sets[key]
	if set.of != editionOf(of) {
		delete(f.sets, key)
		return nil
	}
	waits := map[string]time.Duration{}
	for node, last := range set.nodes {
		since := now.Sub(last.at)
		switch {
		case since > 2*lastWait:
			delete(set.nodes, node)
		case since < last.wait:
			waits[node] = last.wait - since
		}
	}
	return waits
}

// failed records that a failed pod on a node is replaced now.
func (f *failures) failed(of *appsv1.DaemonSet, node string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sets == nil {
		f.sets = map[string]failedSet{}
	}
	key := keyOf(of)
	if set, ok := f.sets[key]; !ok || set.of != editionOf(of) {
		f.sets[key] = failedSet{of: editionOf(of), nodes: map[string]failure{}}
	}
	wait := firstWait
	if last, ok := f.sets[key].nodes[node]; ok {
		wait = min(2*last.wait, lastWait)
	}
	f.sets[key].nodes[node] = failure{at: now, wait: wait}
}

// forget removes the failures of a deleted set.
func (f *failures) forget(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sets, key)
}

func keyOf(set *appsv1.DaemonSet) string { return set.Namespace + "/" + set.Name }
