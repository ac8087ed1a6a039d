package scheduler

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
)

// preempt deletes the victims, which may use their grace period, and removes the nominations of lower-priority pods on
// the node.
func (s *scheduler) preempt(ctx context.Context, pod *cluster.Pod, p Preemption) {
	if p.Node == nil {
		return
	}
	s.metrics.victims.Observe(float64(len(p.Victims)))
	s.binds.Go(func() error {
		failed := false
		for _, v := range p.Victims {
			if failed = !s.evict(ctx, pod, v, p.Node.Name); failed {
				break
			}
		}
		s.queue.resume(pod.UID, failed)
		return nil
	})
	s.mu.Lock()
	var lesser []*cluster.Pod
	for _, o := range slices.Clone(p.Node.Nominated) {
		if o.Priority < pod.Priority {
			lesser = append(lesser, o)
			s.cluster.Nominate(o, "")
			s.queue.removeNomination(o)
		}
	}
	if len(lesser) > 0 {
		s.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone, Node: p.Node})
	}
	s.mu.Unlock()
	for _, o := range lesser {
		if err := s.patchStatus(ctx, o, map[string]any{"nominatedNodeName": nil}); err != nil &&
			!apierrors.IsNotFound(err) {
			s.log.Warn("take back the promise of a node", "pod", o.Key(), "error", err)
		}
	}
}

// evict marks a victim and deletes it. It reports whether the victim is gone or will be. A victim that cannot be marked
// is not deleted: its owner would count the deletion as a failure.
func (s *scheduler) evict(ctx context.Context, pod, v *cluster.Pod, node string) bool {
	if v.DeletionTimestamp != nil {
		return true
	}
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		ObservedGeneration: v.Generation,
		Message: fmt.Sprintf("%s: preempting to accommodate a higher priority pod",
			pod.Scheduler), LastTransitionTime: metav1.Time{Time: s.now()},
	}
	if err := s.patchStatus(ctx, v, map[string]any{"conditions": []corev1.PodCondition{condition}}); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is gone, or another pod has its name
			return true
		}
		s.log.Warn("mark victim of preemption", "pod", v.Key(), "error", err)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	uid := v.UID
	err := s.api.CoreV1().
		Pods(v.Namespace).
		Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		s.log.Warn("delete victim of preemption", "pod", v.Key(), "error", err)
		return false
	}
	s.events[pod.Scheduler].Record(v.Reference(), pod.Reference(), corev1.EventTypeNormal, "Preempted",
		actionPreempting,
		fmt.Sprintf("Preempted by pod %s on node %s", pod.UID, node))
	s.log.Info("pod preempted", "pod", v.Key(), "by", pod.Key(), "node", node)
	return true
}
