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

// tellersAtOnce is the number of goroutines that write refusals.
const tellersAtOnce = 16

// teller holds the pods whose refusal has to be written, each once. The refusal is looked up only when it is written.
type teller struct {
	mu    sync.Mutex
	list  []*item
	ready chan struct{}
}

func newTeller() *teller { return &teller{ready: make(chan struct{}, 1)} }

func (t *teller) add(it *item) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !it.told {
		it.told = true
		t.list = append(t.list, it)
		t.signal()
	}
}

func (t *teller) signal() {
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// next returns the pod that has waited longest. It returns false if there is none.
func (t *teller) next() (*item, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) == 0 {
		return nil, false
	}
	it := t.list[0]
	t.list[0] = nil
	t.list = t.list[1:]
	it.told = false
	if len(t.list) > 0 {
		t.signal() // wake another goroutine
	}
	return it, true
}

// telling writes refusals until ctx ends.
func (s *scheduler) telling(ctx context.Context) {
	for {
		it, ok := s.tell.next()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-s.tell.ready:
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if pod, r := s.queue.told(it); r != nil {
			s.say(ctx, pod, corev1.PodReasonUnschedulable, r.message)
		}
	}
}

// Actions of events, by upstream's names.
const (
	scheduling = "Scheduling"
	assigning  = "Binding"
	preempting = "Preempting"
)

// maxNote is the maximum length of an event's message in bytes. A longer message ends with cut.
const (
	maxNote = 1024
	cut     = " ..."
)

// say reports why a pod has no node, in an event and in its status.
func (s *scheduler) say(ctx context.Context, pod *cluster.Pod, reason, message string) {
	note := message
	if len(note) > maxNote {
		note = note[:maxNote-len(cut)] + cut
	}
	s.events[pod.Scheduler].Tell(pod.Reference(), nil, corev1.EventTypeWarning, "FailedScheduling", scheduling, note)
	s.explain(ctx, pod, reason, message)
}

// explain writes the condition PodScheduled and the nominated node, unless the pod already has them.
func (s *scheduler) explain(ctx context.Context, pod *cluster.Pod, reason, message string) {
	since := metav1.Time{Time: s.now()}
	api := s.queue.promised(pod.UID)
	if have := pod.Condition; have != nil && have.Status == corev1.ConditionFalse {
		if have.Message == message && have.Reason == reason && have.ObservedGeneration == pod.Generation &&
			pod.Nominated == api {
			return
		}
		since = have.LastTransitionTime
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
