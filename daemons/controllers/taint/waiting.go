package taint

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// waiting holds the pods that will be evicted when their toleration expires. An event can then report a pod that may
// stay after all.
type waiting struct {
	mu   sync.Mutex
	pods map[string]seen // by the pod's key
}

type seen struct {
	uid types.UID
	at  time.Time // when it was first seen to wait
}

// begun returns when a pod came to its node: its start time, or if its kubelet has not set that yet, the time when it
// was first seen here.
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

// remove removes a pod from those that wait. It reports whether this pod waited, and not a former one of the same name.
func (w *waiting) remove(key string, uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, ok := w.pods[key]
	delete(w.pods, key)
	return ok && was.uid == uid
}
