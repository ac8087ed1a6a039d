package job

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// written knows the versions of the statuses that this process wrote. Pods that were counted lose their finalizer after
// that, and a cache that shows the pods without the status would have them made again.
type written struct {
	mu       sync.Mutex
	versions map[string]string // by the job's key
}

func (w *written) note(key, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.versions == nil {
		w.versions = map[string]string{}
	}
	w.versions[key] = version
}

func (w *written) forget(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.versions, key)
}

// behind says whether a version of the job is from before what was written.
func (w *written) behind(key, version string) bool {
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
