package loop

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// WrittenVersions records the resource versions of the statuses that this process wrote, so that a controller does not
// act on an older object of the cache. The zero value is empty. It is safe for concurrent use.
type WrittenVersions struct {
	mu       sync.Mutex
	versions map[string]string // by the object's key
}

// Record records the version that a write of an object has returned.
func (w *WrittenVersions) Record(key, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.versions == nil {
		w.versions = map[string]string{}
	}
	w.versions[key] = version
}

// Delete forgets an object that is gone.
func (w *WrittenVersions) Delete(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.versions, key)
}

// IsBehind reports whether a version of an object is older than the status that this process wrote last.
func (w *WrittenVersions) IsBehind(key, version string) bool {
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
