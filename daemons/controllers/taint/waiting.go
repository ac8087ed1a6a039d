package taint

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// waiting holds the pods that are evicted when their toleration's time is over, so that an event can tell of one that may stay after all.
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

// remove takes a pod's name from those that wait, and says whether it was this pod that waited, not a former one of that name.
func (w *waiting) remove(key string, uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, ok := w.uids[key]
	delete(w.uids, key)
	return ok && was == uid
}
