package daemonset

import (
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
)

// How long a failed pod stays before it is replaced: not at all the first time, then from the first to the last of
// these, doubled with each failure on the same node. A node without a failure for twice the last begins anew.
const (
	firstWait = time.Second
	lastWait  = 15 * time.Minute
)

// failures remembers for each set and node when a pod last failed there, so that a pod that always fails at once is not
// replaced in a tight loop.
type failures struct {
	mu   sync.Mutex
	sets map[string]failedSet // by the set's key
}

// failedSet counts for one generation of a set: what failed before an edit says nothing of what it is now.
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
	wait time.Duration // that the next one has
}

// waits returns the nodes on which a failed pod is not to be replaced yet, with how long that takes.
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

// failed counts a pod that failed on a node and is replaced now.
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

// forget drops what is known of a set that is gone.
func (f *failures) forget(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sets, key)
}

func keyOf(set *appsv1.DaemonSet) string { return set.Namespace + "/" + set.Name }
