package daemonset

import (
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Delays before a failed pod is replaced. The first failure on a node has no delay. Then the delay starts at minWait
// and doubles with each failure, up to maxWait. After 2*maxWait without a failure, a node starts again.
const (
	minWait = time.Second
	maxWait = 15 * time.Minute
)

// failures records for each set and node when a pod last failed there. A pod that always fails at once is then not
// replaced in a tight loop.
type failures struct {
	mu    sync.Mutex
	bySet map[string]failedSet // by the set's key
}

// failedSet holds the failures of one generation of a set: failures from before a change of the spec do not count.
type failedSet struct {
	version specVersion
	nodes   map[string]failure
}

type specVersion struct {
	uid        types.UID
	generation int64
}

func specVersionOf(set *appsv1.DaemonSet) specVersion { return specVersion{set.UID, set.Generation} }

type failure struct {
	replacedAt time.Time     // when the last failed pod was replaced
	wait       time.Duration // delay before the next failed pod is replaced
}

// remainingWaits returns the nodes on which a failed pod must not be replaced yet, each with the remaining time.
func (f *failures) remainingWaits(of *appsv1.DaemonSet, now time.Time) map[string]time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := keyOf(of)
	set := f.bySet[key]
	if set.version != specVersionOf(of) {
		delete(f.bySet, key)
		return nil
	}
	waits := map[string]time.Duration{}
	for node, last := range set.nodes {
		since := now.Sub(last.replacedAt)
		switch {
		case since > 2*maxWait:
			delete(set.nodes, node)
		case since < last.wait:
			waits[node] = last.wait - since
		}
	}
	return waits
}

// recordFailure records that a failed pod on a node is replaced now.
func (f *failures) recordFailure(of *appsv1.DaemonSet, node string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bySet == nil {
		f.bySet = map[string]failedSet{}
	}
	key := keyOf(of)
	if set, ok := f.bySet[key]; !ok || set.version != specVersionOf(of) {
		f.bySet[key] = failedSet{version: specVersionOf(of), nodes: map[string]failure{}}
	}
	wait := minWait
	if last, ok := f.bySet[key].nodes[node]; ok {
		wait = min(2*last.wait, maxWait)
	}
	f.bySet[key].nodes[node] = failure{replacedAt: now, wait: wait}
}

// delete removes the failures of a deleted set.
func (f *failures) delete(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.bySet, key)
}

func keyOf(set *appsv1.DaemonSet) string { return set.Namespace + "/" + set.Name }
