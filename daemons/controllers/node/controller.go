// Package node watches the health of nodes: it marks those that fell silent, puts the
// taints on nodes that their conditions call for, and marks the pods of a node that is
// not ready as not ready. Moving pods away is the taint controller's; deleting Nodes
// whose machines are gone is cloudnode's.
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
	"k8s.io/utils/ptr"

	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	nodes  corelisters.NodeLister
	leases cache.Indexer
	pods   cache.Indexer

	mu   sync.Mutex
	seen map[string]sighting
	cut  time.Time // when the watch of leases was last found broken
}

// sighting is the last sign of life of a node. Its time is our own clock's, so that
// a node whose clock is wrong is not taken for dead.
type sighting struct {
	lease  metav1.MicroTime
	status metav1.Time
	at     time.Time
}

const nodeIndex = "node"

// New returns the controller.
func New(c loop.Context) loop.Controller {
	nodes, leases := c.Informers.Core().V1().Nodes(), c.Informers.Coordination().V1().Leases()
	pods := c.Informers.Core().V1().Pods().Informer()
	IndexByNode(pods)
	n := &controller{Context: c, nodes: nodes.Lister(), leases: leases.Informer().GetIndexer(), pods: pods.GetIndexer(), seen: map[string]sighting{}}
	n.Loop = loop.Loop{Name: "node", Counted: "node_lifecycle_controller", Context: c, Sync: n.sync, Synced: []cache.InformerSynced{
		nodes.Informer().HasSynced, leases.Informer().HasSynced, pods.HasSynced}}
	// While we do not hear, nobody can be said to be silent. An informer that runs
	// already takes no handler, but none does here.
	_ = leases.Informer().SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.cut = n.Now()
	})
	c.OnChange(nodes.Informer(), func(old, obj any) {
		if obj == nil {
			gone := old.(*corev1.Node)
			n.mu.Lock()
			delete(n.seen, gone.Name)
			n.mu.Unlock()
			c.Events.Eventf(gone, corev1.EventTypeNormal, "RemovingNode", "Node %s event: Removing Node %s from Controller", gone.Name, gone.Name)
			return
		}
		if old == nil {
			come := obj.(*corev1.Node)
			c.Events.Eventf(come, corev1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", come.Name, come.Name)
		}
		n.Add(obj)
	})
	return n
}

// IndexByNode adds the index that finds pods by node to the pod informer, which must
// not have started.
func IndexByNode(pods cache.SharedIndexInformer) {
	// Adding it again, for another controller, is refused and harmless.
	_ = pods.AddIndexers(cache.Indexers{nodeIndex: func(obj any) ([]string, error) {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			return []string{pod.Spec.NodeName}, nil
		}
		return nil, nil
	}})
}

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

// Run looks at every node each monitor period besides when it changes, since silence is no event.
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

// sweep queues the nodes that are silent or not ready. All others need nothing until they change: thousands that are well leave the
// process at rest, which gives memory back only then.
func (n *controller) sweep() {
	nodes, err := n.nodes.List(labels.Everything())
	if err != nil {
		return
	}
	now := n.Now()
	for _, node := range nodes {
		if n.silent(node, now) || !ready(node) {
			n.Add(node)
		}
	}
}

func (n *controller) sync(ctx context.Context, name string) error {
	node, err := n.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	now := n.Now()
	if n.silent(node, now) {
		if node, err = n.markSilent(ctx, node, now); err != nil {
			return err
		}
	}
	if err := n.taint(ctx, node, now); err != nil {
		return err
	}
	if ready := condition(node, corev1.NodeReady); ready != nil && ready.Status != corev1.ConditionTrue {
		return n.markPods(ctx, node, now)
	}
	return nil
}

// silent says whether the node has not been heard of for too long.
func (n *controller) silent(node *corev1.Node, now time.Time) bool {
	if n.Vouched != nil && n.Vouched(node.Name) {
		return false
	}
	return now.Sub(n.look(node, now)) > n.Config.NodeMonitorGracePeriod
}

// ready says whether the node has said that it is.
func ready(node *corev1.Node) bool {
	c := condition(node, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// look returns since when the node has not been heard of, though it could have been.
func (n *controller) look(node *corev1.Node, now time.Time) time.Time {
	var is sighting
	obj, _, err := n.leases.GetByKey(corev1.NamespaceNodeLease + "/" + node.Name)
	if lease, ok := obj.(*coordinationv1.Lease); ok && err == nil && lease.Spec.RenewTime != nil {
		is.lease = *lease.Spec.RenewTime
	}
	if ready := condition(node, corev1.NodeReady); ready != nil && ready.Status != corev1.ConditionUnknown {
		is.status = ready.LastHeartbeatTime
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	was, known := n.seen[node.Name]
	is.at = was.at
	if !known || !is.lease.Equal(&was.lease) || is.status.After(was.status.Time) {
		is.at = now
	}
	n.seen[node.Name] = is
	if n.cut.After(is.at) {
		return n.cut
	}
	return is.at
}

// markSilent sets the conditions that only the node can know to Unknown.
func (n *controller) markSilent(ctx context.Context, node *corev1.Node, now time.Time) (*corev1.Node, error) {
	updated := node.DeepCopy()
	var changed []corev1.NodeCondition
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		c := condition(updated, kind)
		switch {
		case c == nil:
			changed = append(changed, corev1.NodeCondition{Type: kind, Status: corev1.ConditionUnknown,
				Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: metav1.NewTime(now)})
		case c.Status != corev1.ConditionUnknown:
			c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
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
	n.Events.Eventf(node, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
	return written, nil
}

func (n *controller) taint(ctx context.Context, node *corev1.Node, now time.Time) error {
	want := Taints(node, now)
	if apiequality.Semantic.DeepEqual(node.Spec.Taints, want) {
		return nil
	}
	// The resource version makes the patch fail when somebody else changed the taints.
	if want == nil {
		want = []corev1.Taint{}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": node.ResourceVersion}, "spec": map[string]any{"taints": want}})
	if err != nil {
		return err
	}
	if _, err := n.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taint node %s: %w", node.Name, err)
	}
	return nil
}

// markPods makes the pods of a node that is not ready not ready, so that Services leave
// them out.
func (n *controller) markPods(ctx context.Context, node *corev1.Node, now time.Time) error {
	for _, pod := range PodsOn(n.pods, node.Name) {
		if ready, _ := loop.Ready(pod); !ready {
			continue
		}
		_, err := loop.PatchPodStatus(ctx, n.Client, pod, map[string]any{"conditions": []map[string]any{{
			"type": corev1.PodReady, "status": corev1.ConditionFalse, "reason": "NodeNotReady", "lastTransitionTime": metav1.NewTime(now),
		}}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("mark pod %s/%s as not ready: %w", pod.Namespace, pod.Name, err)
		}
		n.Events.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	}
	return nil
}

// ours are the taints that follow from conditions, by condition and status.
var ours = []struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	key       string
	effects   []corev1.TaintEffect
}{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady, []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable, []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure, []corev1.TaintEffect{corev1.TaintEffectNoSchedule}},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure, []corev1.TaintEffect{corev1.TaintEffectNoSchedule}},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure, []corev1.TaintEffect{corev1.TaintEffectNoSchedule}},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable, []corev1.TaintEffect{corev1.TaintEffectNoSchedule}},
}

// Taints returns the taints that a node should have: what others put there, and what
// follows from its conditions and from being cordoned.
func Taints(node *corev1.Node, now time.Time) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range node.Spec.Taints {
		if !managed(t.Key) {
			out = append(out, t)
		}
	}
	add := func(key string, effect corev1.TaintEffect) {
		if i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect }); i >= 0 {
			out = append(out, node.Spec.Taints[i])
			return
		}
		out = append(out, corev1.Taint{Key: key, Effect: effect, TimeAdded: ptr.To(metav1.NewTime(now.Truncate(time.Second)))})
	}
	for _, o := range ours {
		c := condition(node, o.condition)
		// A node that has not reported yet is not ready; the API server tainted it.
		unreported := c == nil && o.condition == corev1.NodeReady && o.status == corev1.ConditionFalse
		for _, effect := range o.effects {
			if c != nil && c.Status == o.status || unreported && effect == corev1.TaintEffectNoSchedule {
				add(o.key, effect)
			}
		}
	}
	if node.Spec.Unschedulable {
		add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	}
	return out
}

func managed(taint string) bool {
	if taint == corev1.TaintNodeUnschedulable {
		return true
	}
	for i := range ours {
		if ours[i].key == taint {
			return true
		}
	}
	return false
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
