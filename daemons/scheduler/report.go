package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/cluster"
)

// refusalWriters is the number of goroutines that write refusals.
const refusalWriters = 16

// refusalQueue holds the pods whose refusal has to be written, each once. The refusal is looked up only when it is
// written.
type refusalQueue struct {
	mu    sync.Mutex
	items []*item
	ready chan struct{}
}

func newRefusalQueue() *refusalQueue { return &refusalQueue{ready: make(chan struct{}, 1)} }

func (t *refusalQueue) add(it *item) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !it.refusalQueued {
		it.refusalQueued = true
		t.items = append(t.items, it)
		t.signal()
	}
}

func (t *refusalQueue) signal() {
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// next returns the pod that has waited longest. It returns false if there is none.
func (t *refusalQueue) next() (*item, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.items) == 0 {
		return nil, false
	}
	it := t.items[0]
	t.items[0] = nil
	t.items = t.items[1:]
	it.refusalQueued = false
	if len(t.items) > 0 {
		t.signal() // wake another goroutine
	}
	return it, true
}

// writeRefusals writes refusals until ctx ends.
func (s *scheduler) writeRefusals(ctx context.Context) {
	for {
		it, ok := s.refusals.next()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-s.refusals.ready:
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if pod, r := s.queue.pendingRefusal(it); r != nil {
			s.reportUnschedulable(ctx, pod, corev1.PodReasonUnschedulable, r.message)
		}
	}
}

// Actions of events, by upstream's names.
const (
	actionScheduling = "Scheduling"
	actionBinding    = "Binding"
	actionPreempting = "Preempting"
)

// maxEventNote is the maximum length of an event's message in bytes. A longer message is cut and ends with
// truncationMark.
const (
	maxEventNote   = 1024
	truncationMark = " ..."
)

// reportUnschedulable reports why a pod has no node, in an event and in its status.
func (s *scheduler) reportUnschedulable(ctx context.Context, pod *cluster.Pod, reason, message string) {
	note := message
	if len(note) > maxEventNote {
		note = note[:maxEventNote-len(truncationMark)] + truncationMark
	}
	s.events[pod.Scheduler].Record(pod.Reference(), nil, corev1.EventTypeWarning, "FailedScheduling", actionScheduling,
		note)
	s.writeScheduledCondition(ctx, pod, reason, message)
}

// writeScheduledCondition writes the condition PodScheduled and the nominated node, unless the pod already has them.
func (s *scheduler) writeScheduledCondition(ctx context.Context, pod *cluster.Pod, reason, message string) {
	since := metav1.Time{Time: s.now()}
	api := s.queue.shownNomination(pod.UID)
	if current := pod.Condition; current != nil && current.Status == corev1.ConditionFalse {
		if current.Message == message && current.Reason == reason && current.ObservedGeneration == pod.Generation &&
			pod.Nominated == api {
			return
		}
		since = current.LastTransitionTime
	}
	change := map[string]any{"conditions": []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason,
		Message: message, LastTransitionTime: since, ObservedGeneration: pod.Generation,
	}}}
	if pod.Nominated != api {
		change["nominatedNodeName"] = pod.Nominated
	}
	if err := s.patchStatus(ctx, pod, change); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) &&
		ctx.Err() == nil {
		s.log.Warn("explain on pod", "pod", pod.Key(), "error", err)
	}
}

func (s *scheduler) patchStatus(ctx context.Context, pod *cluster.Pod, status map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode a status: %w", err)
	}
	_, err = s.api.CoreV1().
		Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
