package job

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// writtenVersions records the resource versions of the statuses that this process wrote. Counted pods lose their
// finalizer after that write. If the cache showed those pods without the new status, they would be created again.
type writtenVersions struct {
	mu       sync.Mutex
	versions map[string]string // by the job's key
}

func (w *writtenVersions) record(key, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.versions == nil {
		w.versions = map[string]string{}
	}
	w.versions[key] = version
}

func (w *writtenVersions) delete(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.versions, key)
}

// isBehind reports whether a version of the job is older than the status that this process wrote last.
func (w *writtenVersions) isBehind(key, version string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.versions[key]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, last)
	if err == nil && order >= 0 {
		delete(w.versions, key)
	}
	return err == nil && order < 0
}
