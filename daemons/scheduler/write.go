package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/plugin"
)

// writeTimeout bounds every write; what is not written by then is tried again.
const writeTimeout = 15 * time.Second

// bind writes that a pod goes to a node. When it cannot be written, the pod is taken
// back and tried again later.
func (s *scheduler) bind(ctx context.Context, it *item, node string, began time.Time) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	pod := it.taken.Pod
	err := s.api.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		s.queue.done(it)
		s.metrics.attempt("scheduled", s.now().Sub(began))
		s.events.Eventf(pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node)
		s.log.Debug("pod bound", "pod", pod.Namespace+"/"+pod.Name, "node", node)
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		// Gone, or somewhere already: the watch says which.
		s.cache.forget(pod.UID)
		s.queue.park(it, nil, true)
	default:
		s.cache.forget(pod.UID)
		s.queue.park(it, nil, true)
		s.metrics.attempt("error", s.now().Sub(began))
		s.log.Warn("bind pod", "pod", pod.Namespace+"/"+pod.Name, "node", node, "error", err)
	}
}

// refuse says on the pod why it has no node, makes room if less important pods are in
// the way, and has the pod wait.
func (s *scheduler) refuse(ctx context.Context, it *item, snapshot *plugin.Snapshot, placement Placement) {
	pod := it.taken
	message := placement.Explain()
	nominated := pod.Status.NominatedNodeName
	if len(snapshot.Nodes) > 0 {
		preemption := Preemption{Reason: "not helpful while the disruption budgets are not known."}
		budgets, err := s.known.budgets.List(labels.Everything())
		if err != nil {
			s.log.Warn("list disruption budgets", "error", err)
		} else {
			preemption = Preempt(pod, snapshot, placement, budgets)
		}
		if preemption.Node != nil {
			nominated = preemption.Node.Name
			s.cache.nominate(pod, nominated)
			s.preempt(ctx, pod, preemption)
		} else {
			message += " preemption: " + preemption.Reason
		}
	}
	s.metrics.attempt("unschedulable", 0)
	s.queue.park(it, placement.Filters, false)
	s.events.Event(pod.Pod, corev1.EventTypeWarning, "FailedScheduling", message)
	s.binds.Go(func() error {
		s.explain(ctx, pod.Pod, nominated, message)
		return nil
	})
}

// preempt deletes the victims, who may end in their own time.
func (s *scheduler) preempt(ctx context.Context, pod *plugin.Pod, p Preemption) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for _, v := range p.Victims {
		if v.DeletionTimestamp != nil {
			continue
		}
		condition := corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
			Message: fmt.Sprintf("%s: preempting to accommodate a higher priority pod", Name), LastTransitionTime: metav1.Time{Time: s.now()},
		}
		if err := s.patchStatus(ctx, v.Pod, map[string]any{"conditions": []corev1.PodCondition{condition}}); err != nil && !apierrors.IsNotFound(err) {
			s.log.Warn("mark victim of preemption", "pod", v.Namespace+"/"+v.Name, "error", err)
		}
		uid := v.UID
		err := s.api.CoreV1().Pods(v.Namespace).Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			s.log.Warn("delete victim of preemption", "pod", v.Namespace+"/"+v.Name, "error", err)
			continue
		}
		s.events.Eventf(v.Pod, corev1.EventTypeNormal, "Preempted", "Preempted by pod %s on node %s", pod.UID, p.Node.Name)
		s.log.Info("pod preempted", "pod", v.Namespace+"/"+v.Name, "by", pod.Namespace+"/"+pod.Name, "node", p.Node.Name)
	}
}

// explain writes the condition PodScheduled, unless it says so already.
func (s *scheduler) explain(ctx context.Context, pod *corev1.Pod, nominated, message string) {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	since := metav1.Time{Time: s.now()}
	if i >= 0 {
		if have := pod.Status.Conditions[i]; have.Status == corev1.ConditionFalse {
			if have.Message == message && have.Reason == corev1.PodReasonUnschedulable && pod.Status.NominatedNodeName == nominated {
				return
			}
			since = have.LastTransitionTime
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	change := map[string]any{"conditions": []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: message, LastTransitionTime: since, ObservedGeneration: pod.Generation,
	}}}
	if nominated != pod.Status.NominatedNodeName {
		change["nominatedNodeName"] = nominated
	}
	if err := s.patchStatus(ctx, pod, change); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		s.log.Warn("explain on pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
}

func (s *scheduler) patchStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode a status: %w", err)
	}
	_, err = s.api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
