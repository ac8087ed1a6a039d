// Package node monitors the health of nodes. It marks silent nodes and their pods as not ready. It sets the taints that
// follow from the conditions of nodes, and limits how fast nodes get a taint that evicts pods. It also sets deprecated
// labels. The taint controller evicts the pods. Package cloudnode deletes Nodes whose machines are gone.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	nodes  corelisters.NodeLister
	leases cache.Indexer
	pods   cache.Indexer
	zones  zones
	counts counts

	mu            sync.Mutex
	heartbeats    map[string]heartbeat
	watchFailedAt time.Time // when the watch of leases last failed
}

// heartbeat records the last heartbeat of a node. Its time is that of our clock, so that a node with a wrong clock does
// not count as dead.
type heartbeat struct {
	key    string // of the node's lease
	lease  metav1.MicroTime
	status metav1.Time
	seenAt time.Time
}

const nodeIndex = "node"

// New returns the controller.
func New(c loop.Context) loop.Controller {
	nodes, leases := informers.Nodes(c.Informers), informers.Leases(c.Informers)
	pods := informers.Pods(c.Informers).Informer()
	IndexByNode(pods)
	n := &controller{Context: c, nodes: nodes.Lister(), leases: leases.Informer().GetIndexer(), pods: pods.GetIndexer(),
		zones: zones{cfg: c.Config}, counts: newCounts(), heartbeats: map[string]heartbeat{}}
	for _, metric := range n.counts.collectors() {
		c.RegisterMetrics(metric)
	}
	n.Loop = loop.Loop{
		Name:            "node",
		QueueMetricName: "node_lifecycle_controller",
		Context:         c,
		Sync:            n.sync,
		Synced: []cache.InformerSynced{
			nodes.Informer().HasSynced, leases.Informer().HasSynced, pods.HasSynced},
	}
	// While this watch is broken, no node can be declared silent. Setting the handler fails only on an informer that
	// runs already, which is not the case here.
	_ = leases.Informer().SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.watchFailedAt = n.Now()
	})
	c.OnChange(nodes.Informer(), func(old, obj any) {
		if obj == nil {
			deleted := old.(*corev1.Node)
			n.mu.Lock()
			delete(n.heartbeats, deleted.Name)
			n.mu.Unlock()
			c.Events.Eventf(deleted, corev1.EventTypeNormal, "RemovingNode",
				"Node %s event: Removing Node %s from Controller", deleted.Name, deleted.Name)
			return
		}
		if old == nil {
			come := obj.(*corev1.Node)
			c.Events.Eventf(come, corev1.EventTypeNormal, "RegisteredNode",
				"Node %s event: Registered Node %s in Controller", come.Name, come.Name)
		}
		n.Add(obj)
	})
	return n
}

// IndexByNode adds the index that finds pods by node to the pod informer, which must not be started yet.
func IndexByNode(pods cache.SharedIndexInformer) {
	// Several controllers add it. Further attempts return an error and are harmless.
	_ = pods.AddIndexers(cache.Indexers{nodeIndex: func(obj any) ([]string, error) {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			return []string{pod.Spec.NodeName}, nil
		}
		return nil, nil
	}})
}

// NodesOfPods returns the names of all nodes that have pods.
func NodesOfPods(pods cache.Indexer) []string { return pods.ListIndexFuncValues(nodeIndex) }

// PodsOn returns the pods on a node.
func PodsOn(pods cache.Indexer, node string) []*corev1.Pod {
	objs, err := pods.ByIndex(nodeIndex, node)
	if err != nil {
		return nil
	}
	out := make([]*corev1.Pod, 0, len(objs))
	for _, obj := range objs {
		out = append(out, obj.(*corev1.Pod))
	}
	return out
}

// Run syncs nodes when they change. It also checks all nodes every monitor period, because silence is no event.
func (n *controller) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := n.NewTicker(n.Config.NodeMonitorPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C():
			}
			n.sweep()
		}
	})
	err := n.Loop.Run(ctx)
	wg.Wait()
	return err
}

// sweep counts the nodes of each zone, and queues those that are silent or not ready. Other nodes need no sync until
// they change. Thousands of healthy nodes then leave the process idle, and only an idle process gives memory back.
func (n *controller) sweep() {
	nodes, err := n.nodes.List(labels.Everything())
	if err != nil {
		return
	}
	now := n.Now()
	isLate := func(node *corev1.Node) bool { return n.silentFor(node, now) > n.Config.NodeMonitorGracePeriod*3/5 }
	if n.zones.count(nodes, isLate, now) {
		n.Log.Warn("all nodes are lost: no pods are moved away from them")
	}
	for _, node := range nodes {
		if n.isSilent(node, now) || !isReady(node) {
			n.Add(node)
		}
	}
	n.counts.set(n.zones.notReadyByZone(), n.Now().Sub(now))
}

func (n *controller) sync(ctx context.Context, name string) error {
	node, err := n.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	now := n.Now()
	defer func() { n.counts.syncDuration.Observe(n.Now().Sub(now).Seconds()) }()
	if n.isSilent(node, now) {
		if node, err = n.markSilent(ctx, node, now); err != nil {
			return err
		}
	}
	if err := n.writeTaints(ctx, node, now); err != nil {
		return err
	}
	if err := n.copyLabels(ctx, node); err != nil {
		return err
	}
	// A kubelet that itself reports its node as not ready still reports the state of its pods.
	if ready := findCondition(node, corev1.NodeReady); ready != nil && ready.Status == corev1.ConditionUnknown {
		return n.markPods(ctx, node, now)
	}
	return nil
}

// isSilent reports whether the node has sent no heartbeat for too long.
func (n *controller) isSilent(node *corev1.Node, now time.Time) bool {
	grace := n.Config.NodeMonitorGracePeriod
	if findCondition(node, corev1.NodeReady) == nil { // the machine may still be starting
		grace = n.Config.NodeStartupGracePeriod
	}
	return n.silentFor(node, now) > grace
}

// silentFor returns how long the node has sent no heartbeat.
func (n *controller) silentFor(node *corev1.Node, now time.Time) time.Duration {
	if n.AliveWithoutHeartbeat != nil && n.AliveWithoutHeartbeat(node.Name) {
		return 0
	}
	return now.Sub(n.lastHeartbeat(node, now))
}

// isReady reports whether the node's condition Ready is true.
func isReady(node *corev1.Node) bool {
	c := findCondition(node, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// lastHeartbeat returns since when the node has sent no heartbeat although the watch would have shown it.
func (n *controller) lastHeartbeat(node *corev1.Node, now time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, found := n.heartbeats[node.Name]
	after := heartbeat{key: before.key, seenAt: before.seenAt}
	if !found {
		after.key = corev1.NamespaceNodeLease + "/" + node.Name
	}
	obj, _, err := n.leases.GetByKey(after.key)
	if lease, ok := obj.(*coordinationv1.Lease); ok && err == nil && lease.Spec.RenewTime != nil {
		after.lease = *lease.Spec.RenewTime
	}
	if ready := findCondition(node, corev1.NodeReady); ready != nil && ready.Status != corev1.ConditionUnknown {
		after.status = ready.LastHeartbeatTime
	}
	if !found || !after.lease.Time.Equal(before.lease.Time) || after.status.After(before.status.Time) {
		after.seenAt = now
	}
	n.heartbeats[node.Name] = after
	if n.watchFailedAt.After(after.seenAt) {
		return n.watchFailedAt
	}
	return after.seenAt
}

// markSilent sets the conditions that only the kubelet can report to Unknown.
func (n *controller) markSilent(ctx context.Context, node *corev1.Node, now time.Time) (*corev1.Node, error) {
	updated := node.DeepCopy()
	var changed []corev1.NodeCondition
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure,
		corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		c := findCondition(updated, kind)
		switch {
		case c == nil:
			changed = append(changed, corev1.NodeCondition{Type: kind, Status: corev1.ConditionUnknown,
				Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: metav1.NewTime(now)})
		case c.Status != corev1.ConditionUnknown:
			c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting "+
				"node status."
			c.LastTransitionTime = metav1.NewTime(now)
			changed = append(changed, *c)
		}
	}
	if len(changed) == 0 {
		return node, nil
	}
	written, err := loop.PatchNodeConditions(ctx, n.Client, node, changed)
	if err != nil {
		return nil, fmt.Errorf("mark node %s as silent: %w", node.Name, err)
	}
	if isReady(node) {
		n.Events.Eventf(node, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
	}
	return written, nil
}

func (n *controller) writeTaints(ctx context.Context, node *corev1.Node, now time.Time) error {
	evict, wasEvicting := false, hasEvictingTaint(node.Spec.Taints)
	var want []corev1.Taint
	switch {
	case n.zones.areAllLost():
		want = slices.DeleteFunc(Taints(node, false, now),
			func(t corev1.Taint) bool { return hasEvictingTaint([]corev1.Taint{t}) })
	case notReadyTaint(node) != "" && !wasEvicting:
		wait := n.zones.untilTaint(node, now)
		if evict = wait == 0; !evict {
			n.AddAfter(node.Name, wait)
		}
		want = Taints(node, evict, now)
	default:
		want = Taints(node, false, now)
	}
	if apiequality.Semantic.DeepEqual(node.Spec.Taints, want) {
		return nil
	}
	// The patch fails if another client has changed the taints, because it contains the resource version.
	if want == nil {
		want = []corev1.Taint{}
	}
	patch, err := json.Marshal(
		map[string]any{
			"metadata": map[string]any{"resourceVersion": node.ResourceVersion},
			"spec":     map[string]any{"taints": want},
		},
	)
	if err != nil {
		return err
	}
	if _, err := n.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("taint node %s: %w", node.Name, err)
	}
	if evict {
		n.counts.evictions.WithLabelValues(zoneOf(node)).Inc()
	}
	return nil
}

// deprecatedLabels maps labels to the deprecated labels that they replaced. Selectors that still use a deprecated label
// match the same nodes.
var deprecatedLabels = map[string]string{
	corev1.LabelOSStable:   "beta.kubernetes.io/os",
	corev1.LabelArchStable: "beta.kubernetes.io/arch",
}

// copyLabels copies the values of labels to the deprecated labels that they replaced.
func (n *controller) copyLabels(ctx context.Context, node *corev1.Node) error {
	want := map[string]string{}
	for after, before := range deprecatedLabels {
		value, ok := node.Labels[after]
		if former, exists := node.Labels[before]; ok && (!exists || former != value) {
			want[before] = value
		}
	}
	if len(want) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": want}})
	if err != nil {
		return err
	}
	if _, err := n.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("label node %s: %w", node.Name, err)
	}
	return nil
}

// markPods marks the pods of a silent node as not ready, so that Services leave them out.
func (n *controller) markPods(ctx context.Context, node *corev1.Node, now time.Time) error {
	for _, pod := range PodsOn(n.pods, node.Name) {
		if ready, _ := loop.IsReady(pod); !ready {
			continue
		}
		_, err := loop.PatchPodStatus(ctx, n.Client, pod, map[string]any{"conditions": []map[string]any{{
			"type": corev1.PodReady, "status": corev1.ConditionFalse, "lastTransitionTime": metav1.NewTime(now),
			"observedGeneration": pod.Generation,
		}}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("mark pod %s/%s as not ready: %w", pod.Namespace, pod.Name, err)
		}
		n.Events.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	}
	return nil
}

func findCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
