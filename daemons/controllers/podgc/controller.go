// Package podgc deletes pods that no other component deletes. These are pods on nodes that do not exist, and deleted
// pods without a node or on a node that is declared out of service. It also deletes the oldest finished pods above a
// limit.
package podgc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/daemons/controllers/node"
)

type controller struct {
	loop.Context
	nodes        corelisters.NodeLister
	pods         cache.Indexer
	synced       []cache.InformerSynced
	missingSince map[string]time.Time // nodes that pods name and that do not exist, and since when

	counts counts
}

// counts holds the metrics of pods to delete, by namespace and reason.
type counts struct{ deleted, failed *prometheus.CounterVec }

func newCounts(c loop.Context) counts {
	return counts{
		deleted: c.Counter("pod_gc_collector_force_delete_pods_total",
			"Pods that the pod garbage collector tried to delete.", "namespace", "reason"),
		failed: c.Counter("pod_gc_collector_force_delete_pod_errors_total", "Failures to delete such pods.",
			"namespace", "reason"),
	}
}

// maxInterval is the maximum time between two passes over the pods.
const maxInterval = 20 * time.Second

// New returns the controller.
func New(c loop.Context) loop.Controller {
	nodes, pods := informers.Nodes(c.Informers), informers.Pods(c.Informers).Informer()
	node.IndexByNode(pods)
	_ = pods.AddIndexers(cache.Indexers{endIndex: byEnd})
	return &controller{
		Context:      c,
		nodes:        nodes.Lister(),
		pods:         pods.GetIndexer(),
		missingSince: map[string]time.Time{},
		counts:       newCounts(c),
		synced:       []cache.InformerSynced{nodes.Informer().HasSynced, pods.HasSynced},
	}
}

func (g *controller) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), g.synced...) {
		return fmt.Errorf("controller podgc: %w before its caches were filled", ctx.Err())
	}
	tick := g.NewTicker(min(maxInterval, max(g.Config.NodeMonitorGracePeriod/2, time.Second)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
		if err := g.collect(ctx); err != nil && ctx.Err() == nil {
			g.Log.Info("will try again", "controller", "podgc", "reason", err)
		}
	}
}

func (g *controller) collect(ctx context.Context) error {
	nodes, err := g.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	pods, err := g.candidates()
	if err != nil {
		return err
	}
	lost := g.lostNodes(pods)
	var failures []error
	for name := range lost {
		// Ask the API server: a node that is not in the cache may exist.
		_, err := g.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		delete(lost, name)
		if err != nil {
			failures = append(failures, fmt.Errorf("look for node %s: %w", name, err))
		}
	}
	out := outOfServiceNodes(nodes)
	for name := range out {
		// The node may have recovered. Pods are deleted here without confirmation of the node, so do not rely on the
		// cache.
		now, err := g.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil || !outOfServiceNodes([]*corev1.Node{now})[name] {
			delete(out, name)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			failures = append(failures, fmt.Errorf("look for node %s: %w", name, err))
		}
	}
	for _, d := range PodsToDelete(pods, lost, out, g.Config.TerminatedPodGCThreshold) {
		// A pod that has changed, or that cannot be deleted, does not prevent the deletion of others.
		err := g.delete(ctx, d.pod, d.isOrphaned)
		g.counts.deleted.WithLabelValues(d.pod.Namespace, d.reason).Inc()
		if err != nil {
			g.counts.failed.WithLabelValues(d.pod.Namespace, d.reason).Inc()
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// endIndex finds the pods that have ended or are being deleted.
const endIndex = "end"

func byEnd(obj any) ([]string, error) {
	if p, ok := obj.(*corev1.Pod); ok && isCandidate(p) {
		return []string{endIndex}, nil
	}
	return nil, nil
}

func isCandidate(p *corev1.Pod) bool { return p.DeletionTimestamp != nil || isFinished(p) }

// candidates returns the few pods that may have to be deleted, without scanning all pods.
func (g *controller) candidates() ([]*corev1.Pod, error) {
	ending, err := g.pods.ByIndex(endIndex, endIndex)
	if err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, 0, len(ending))
	for _, o := range ending {
		pods = append(pods, o.(*corev1.Pod))
	}
	for _, name := range node.NodesOfPods(g.pods) {
		if g.nodeExists(name) {
			continue
		}
		for _, p := range node.PodsOn(g.pods, name) {
			if !isCandidate(p) {
				pods = append(pods, p)
			}
		}
	}
	return pods, nil
}

func (g *controller) nodeExists(name string) bool {
	_, err := g.nodes.Get(name)
	return err == nil
}

// lostNodes returns the nodes that pods name and that have been missing for long enough.
func (g *controller) lostNodes(pods []*corev1.Pod) map[string]bool {
	now := g.Now()
	missing := map[string]bool{}
	out := map[string]bool{}
	for _, pod := range pods {
		name := pod.Spec.NodeName
		if name == "" || g.nodeExists(name) {
			continue
		}
		missing[name] = true
		if since, ok := g.missingSince[name]; !ok {
			g.missingSince[name] = now
		} else if now.Sub(since) >= g.Config.NodeMonitorGracePeriod { // before that, it may register again
			out[name] = true
		}
	}
	for name := range g.missingSince {
		if !missing[name] {
			delete(g.missingSince, name)
		}
	}
	return out
}

func (g *controller) delete(ctx context.Context, pod *corev1.Pod, orphaned bool) error {
	seen := pod
	if !isFinished(pod) {
		status := map[string]any{"phase": corev1.PodFailed}
		if orphaned {
			status["conditions"] = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC",
				Message: "PodGC: node no longer exists", LastTransitionTime: metav1.NewTime(g.Now()),
				ObservedGeneration: pod.Generation}}
		}
		marked, err := loop.PatchPodStatus(ctx, g.Client, pod, status)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("mark pod %s/%s as failed: %w", pod.Namespace, pod.Name, err)
		}
		seen = marked
	}
	now, options := int64(0), loop.IfUnchanged(seen)
	options.GracePeriodSeconds = &now
	err := g.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
