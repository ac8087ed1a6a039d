package taint

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// waiting is which pods have to go later, when what they tolerate runs out. One that may stay after all is told so.
type waiting struct {
	mu   sync.Mutex
	uids map[string]types.UID // by the pod's key
}

func (w *waiting) add(key string, pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.uids == nil {
		w.uids = map[string]types.UID{}
	}
	w.uids[key] = pod.UID
}

// remove says whether this pod waited, and has it, or who had its name before, wait no longer.
func (w *waiting) remove(key string, uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, ok := w.uids[key]
	delete(w.uids, key)
	return ok && was == uid
}
