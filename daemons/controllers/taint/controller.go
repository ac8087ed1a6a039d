// Package taint evicts pods from nodes with a NoExecute taint that they do not tolerate, at once or when their
// toleration expires. The node controller limits how fast lost nodes get such a taint.
package taint

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/api"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/daemons/controllers/node"
)

type controller struct {
	loop.Context
	loop.Loop
	nodes       corelisters.NodeLister
	pods        cache.Indexer
	firstSeen   firstSeenTaints
	deleted     *prometheus.CounterVec   // pods deleted
	delay       *prometheus.HistogramVec // seconds from a pod's deadline to its deletion
	waitingPods waitingPods
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	nodes, pods := informers.Nodes(c.Informers), informers.Pods(c.Informers).Informer()
	node.IndexByNode(pods)
	t := &controller{Context: c, nodes: nodes.Lister(), pods: pods.GetIndexer()}
	t.deleted = c.Counter("taint_eviction_controller_pod_deletions_total", "Pods that were deleted for a taint.")
	t.delay = c.Histogram("taint_eviction_controller_pod_deletion_duration_seconds",
		"How long after it had to go a pod was deleted for a taint.", loop.DeletionBuckets)
	t.deleted.WithLabelValues()
	t.Loop = loop.Loop{
		Name:            "taint-eviction",
		QueueMetricName: "noexec_taint_pod",
		Context:         c,
		Sync:            t.sync,
		Synced:          []cache.InformerSynced{nodes.Informer().HasSynced, pods.HasSynced},
	}
	c.OnChange(nodes.Informer(), t.nodeChanged)
	c.OnChange(pods, t.podChanged)
	return t
}

func (t *controller) nodeChanged(old, obj any) {
	if obj == nil {
		t.firstSeen.delete(old.(*corev1.Node).Name)
		return
	}
	n := obj.(*corev1.Node)
	taints := t.datedTaints(n)
	before, ok := old.(*corev1.Node)
	if len(taints) == 0 && (!ok || len(noExecute(before)) == 0) {
		return
	}
	for _, pod := range node.PodsOn(t.pods, n.Name) {
		t.Add(pod)
	}
}

func (t *controller) podChanged(old, obj any) {
	if obj == nil {
		deleted := old.(*corev1.Pod)
		t.waitingPods.remove(deleted.Namespace+"/"+deleted.Name, deleted.UID)
		return
	}
	if pod := obj.(*corev1.Pod); pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
		if n, err := t.nodes.Get(pod.Spec.NodeName); err == nil && len(noExecute(n)) > 0 {
			t.Add(pod)
		}
	}
}

func (t *controller) sync(ctx context.Context, key string) error {
	obj, exists, err := t.pods.GetByKey(key)
	if err != nil || !exists {
		return err
	}
	pod := obj.(*corev1.Pod)
	if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
		return nil
	}
	n, err := t.nodes.Get(pod.Spec.NodeName)
	if err != nil {
		return nil // package podgc handles pods of nodes that do not exist
	}
	now, taints := t.Now(), t.datedTaints(n)
	at, evict := Deadline(pod, taints, t.waitingPods.startedAt(key, pod, now))
	if !evict {
		if t.waitingPods.remove(key, pod.UID) {
			t.Events.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s", key)
		}
		return nil
	}
	if wait := at.Sub(now); wait > 0 {
		t.waitingPods.add(key, pod, now)
		t.AddAfter(key, wait)
		return nil
	}
	if err := t.evict(ctx, pod); err != nil {
		return err
	}
	t.deleted.WithLabelValues().Inc()
	if at.IsZero() { // it had to be deleted at once
		at = now
	}
	t.delay.WithLabelValues().Observe(t.Now().Sub(at).Seconds())
	t.waitingPods.remove(key, pod.UID)
	return nil
}

func (t *controller) evict(ctx context.Context, pod *corev1.Pod) error {
	marked, err := loop.PatchPodStatus(ctx, t.Client, pod, map[string]any{"conditions": []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager",
		Message: "Taint manager: deleting due to NoExecute taint", LastTransitionTime: metav1.NewTime(t.Now()),
		ObservedGeneration: pod.Generation,
	}}})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("mark pod %s/%s for eviction: %w", pod.Namespace, pod.Name, err)
	}
	err = t.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, loop.IfUnchanged(marked))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	t.Events.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s",
		pod.Namespace, pod.Name)
	return nil
}

// Deadline returns when a pod that came to its node at start must be evicted, and whether it must be at all. Of several
// tolerations of one taint, the shortest counts. A pod that arrives after the taint was added still gets its full
// toleration period.
func Deadline(pod *corev1.Pod, taints []corev1.Taint, start time.Time) (at time.Time, evict bool) {
	for _, taint := range taints {
		tolerated := false
		var limit *int64
		for _, tol := range pod.Spec.Tolerations {
			if !api.Tolerates(&tol, &taint) {
				continue
			}
			tolerated = true
			if s := tol.TolerationSeconds; s != nil && (limit == nil || *s < *limit) {
				limit = s
			}
		}
		if tolerated && limit == nil {
			continue
		}
		var due time.Time
		if tolerated && taint.TimeAdded != nil {
			from := taint.TimeAdded.Time
			if start.After(from) {
				from = start
			}
			due = from.Add(api.Seconds(max(*limit, 0)))
		}
		if !evict || due.Before(at) {
			at = due
		}
		evict = true
	}
	return at, evict
}

func noExecute(n *corev1.Node) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			out = append(out, t)
		}
	}
	return out
}
