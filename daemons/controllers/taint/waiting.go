package taint

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// waiting holds the pods that are evicted when their toleration's time is over, so that an event can tell of one that
// may stay after all.
type waiting struct {
	mu   sync.Mutex
	pods map[string]seen // by the pod's key
}

type seen struct {
	uid types.UID
	at  time.Time // when it was first seen to wait
}

// begun is when a pod came to its node: what its kubelet says or, as long as that says nothing, when it was first seen
// here.
func (w *waiting) begun(key string, pod *corev1.Pod, now time.Time) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if was, ok := w.pods[key]; ok && was.uid == pod.UID {
		return was.at
	}
	return now
}

func (w *waiting) add(key string, pod *corev1.Pod, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods == nil {
		w.pods = map[string]seen{}
	}
	if was, ok := w.pods[key]; !ok || was.uid != pod.UID {
		w.pods[key] = seen{pod.UID, now}
	}
}

// remove takes a pod's name from those that wait, and reports whether it was this pod that waited, not a former one of
// that name.
func (w *waiting) remove(key string, uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, ok := w.pods[key]
	delete(w.pods, key)
	return ok && was.uid == uid
}
