package taint

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// waitingPods holds the pods that will be evicted when their toleration expires. An event can then report a pod that
// may stay after all.
type waitingPods struct {
	mu   sync.Mutex
	pods map[string]waitingPod // by the pod's key
}

type waitingPod struct {
	uid   types.UID
	since time.Time // when it was first seen to wait
}

// startedAt returns when a pod came to its node: its start time, or if its kubelet has not set that yet, the time when
// it was first seen here.
func (w *waitingPods) startedAt(key string, pod *corev1.Pod, now time.Time) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, ok := w.pods[key]; ok && before.uid == pod.UID {
		return before.since
	}
	return now
}

func (w *waitingPods) add(key string, pod *corev1.Pod, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods == nil {
		w.pods = map[string]waitingPod{}
	}
	if before, ok := w.pods[key]; !ok || before.uid != pod.UID {
		w.pods[key] = waitingPod{pod.UID, now}
	}
}

// remove removes a pod from those that wait. It reports whether this pod waited, and not a former one of the same name.
func (w *waitingPods) remove(key string, uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, ok := w.pods[key]
	delete(w.pods, key)
	return ok && before.uid == uid
}
