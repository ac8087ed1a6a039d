// Package cloudnode is the node controller of the bare-metal cloud. It corresponds to upstream's cloud-node and
// cloud-node-lifecycle controllers. Nodes get the provider ID, external addresses, region and zone that the inventory
// has for their machines. A Node that is not ready and whose machine has left the inventory is deleted. Package node
// monitors the health of nodes.
package cloudnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config/inventory"
	"clusterctl/daemons/controllers/loop"
)

// inventoryKey is the queue's key for the inventory. No Node has such a name.
const inventoryKey = "/inventory"

type controller struct {
	loop.Context
	loop.Loop
	ownInformers *informers.Factory // watches only the inventory's ConfigMap
	maps         corelisters.ConfigMapLister
	nodes        corelisters.NodeLister

	mu             sync.Mutex
	inventory      inventory.Inventory // nil if none was read, or the last one is invalid
	unusableReason string              // why list is nil
	maxSeenVersion uint64              // the highest resource version of an inventory
	warned         map[string]string   // by Node: the last warning about it
	unusable       *prometheus.GaugeVec
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	own := informers.New(c.Client, informers.WithNamespace(metav1.NamespaceSystem),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, inventory.Name).String()
		}))
	nodes, maps := informers.Nodes(c.Informers), informers.ConfigMaps(own)
	n := &controller{
		Context:        c,
		ownInformers:   own,
		maps:           maps.Lister(),
		nodes:          nodes.Lister(),
		unusableReason: "it has not been read yet",
		warned:         map[string]string{},
		unusable:       newUnusableGauge(),
	}
	c.RegisterMetrics(n.unusable)
	n.Loop = loop.Loop{Name: "cloud-node", QueueMetricName: "Nodes", Context: c, Sync: n.sync,
		Synced: []cache.InformerSynced{
			nodes.Informer().HasSynced, maps.Informer().HasSynced}}
	c.OnChange(nodes.Informer(), func(old, obj any) {
		if obj == nil {
			n.warn(old.(*corev1.Node), "", "")
			return
		}
		if node := obj.(*corev1.Node); n.needsSync(node) {
			n.Add(node)
		}
	})
	loop.OnState(maps.Informer(), func(any) { n.Queue().Add(inventoryKey) })
	return n
}

// Run implements loop.Controller.
func (n *controller) Run(ctx context.Context) error {
	n.ownInformers.StartWithContext(ctx)
	defer n.ownInformers.Shutdown()
	n.Queue().Add(inventoryKey) // also if there is no inventory
	return n.Loop.Run(ctx)
}

func (n *controller) sync(ctx context.Context, key string) error {
	if key == inventoryKey {
		return n.readInventory()
	}
	node, err := n.nodes.Get(key)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	n.mu.Lock()
	list, reason := n.inventory, n.unusableReason
	n.mu.Unlock()
	if list == nil {
		if strings.HasPrefix(node.Spec.ProviderID, inventory.Scheme) && !isReady(node) {
			n.warn(node, "InventoryUnavailable",
				"Nothing is decided about the node's machine: the inventory of machines cannot be used: "+reason)
		}
		return nil
	}
	d := decide(node, list)
	n.warn(node, d.reason, d.warning)
	switch {
	case d.isMachineGone:
		return n.delete(ctx, node)
	case d.needsWrite:
		return n.write(ctx, node, d)
	}
	return nil
}

// needsSync reports whether a node needs a sync. Most nodes do not.
func (n *controller) needsSync(node *corev1.Node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inventory == nil {
		return strings.HasPrefix(node.Spec.ProviderID, inventory.Scheme) && !isReady(node)
	}
	d := decide(node, n.inventory)
	return d.isMachineGone || d.needsWrite || d.warning != n.warned[node.Name]
}

// readInventory reads the inventory. An inventory that is missing, invalid or older than the latest one counts as none,
// and nothing is done because of it.
func (n *controller) readInventory() error {
	m, err := n.maps.ConfigMaps(metav1.NamespaceSystem).Get(inventory.Name)
	list, reason, state := inventory.Inventory(nil), "", reasonMissing
	var version uint64
	switch {
	case apierrors.IsNotFound(err):
		reason = "there is none"
	case err != nil:
		return fmt.Errorf("read the inventory of machines: %w", err)
	default:
		version, state = versionOf(m), reasonInvalid
		if list, err = inventory.Decode(m.Data); err != nil {
			reason = err.Error()
		}
	}
	n.mu.Lock()
	if m != nil && list != nil && version < n.maxSeenVersion {
		list, reason, state = nil, "it is older than one that was there before", reasonOlder
	}
	if list != nil {
		state = reasonUsable
	}
	news := n.unusableReason != reason
	n.maxSeenVersion = max(n.maxSeenVersion, version)
	n.inventory, n.unusableReason = list, reason
	n.mu.Unlock()
	n.reportInventory(state, reason, news)
	if list == nil {
		n.Log.Info("the inventory of machines cannot be used; nodes stay as they are", "configMap", inventory.Name,
			"reason", reason)
	} else {
		n.Log.Debug("the inventory of machines was read", "machines", len(list))
	}
	all, err := n.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, node := range all {
		if n.needsSync(node) {
			n.Add(node)
		}
	}
	return nil
}

func versionOf(o metav1.Object) uint64 {
	v, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64) // zero if it is not a number
	return v
}

// errOlder means that an API server returned an inventory that is older than one seen before.
var errOlder = errors.New("the API server has an inventory of machines that is older than one seen before")

// delete deletes a Node whose machine is gone. It confirms that with the API server first, because the caches may be
// behind.
func (n *controller) delete(ctx context.Context, node *corev1.Node) error {
	m, err := n.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, inventory.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the inventory of machines before node %s is deleted: %w", node.Name, err)
	}
	n.mu.Lock()
	seen := n.maxSeenVersion
	n.mu.Unlock()
	if versionOf(m) < seen {
		return errOlder
	}
	list, err := inventory.Decode(m.Data)
	if err != nil {
		return fmt.Errorf("read the inventory of machines before node %s is deleted: %w", node.Name, err)
	}
	live, err := n.Client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	if loop.IsAbsent(err, "nodes", node.Name) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read node %s before it is deleted: %w", node.Name, err)
	}
	if live.UID != node.UID || !decide(live, list).isMachineGone {
		return nil // a change will arrive through the watch
	}
	n.Log.Info("deleting a node whose machine is not in the inventory", "node", live.Name, "providerID",
		live.Spec.ProviderID)
	n.Events.Eventf(live, corev1.EventTypeNormal, "DeletingNode",
		"Deleting node %s because it does not exist in the cloud provider", live.Name)
	err = n.Client.CoreV1().
		Nodes().
		Delete(ctx, live.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &live.UID,
				ResourceVersion: &live.ResourceVersion}})
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	if !apierrors.IsConflict(err) {
		n.Events.Eventf(live, corev1.EventTypeWarning, "DeletingNodeFailed", "Failed deleting node %s: %v", live.Name,
			err)
	}
	return fmt.Errorf("delete node %s: %w", live.Name, err)
}

// write writes the inventory's data of a machine to its Node, unless the Node has changed since it was read.
func (n *controller) write(ctx context.Context, node *corev1.Node, d decision) error {
	if d.addresses != nil {
		written, err := n.patch(ctx, node, map[string]any{"status": map[string]any{"addresses": d.addresses}}, "status")
		if err != nil {
			return fmt.Errorf("write the addresses of node %s: %w", node.Name, err)
		}
		node = written
	}
	spec, meta := map[string]any{}, map[string]any{}
	if d.providerID != "" {
		spec["providerID"] = d.providerID
	}
	if d.initialized {
		spec["taints"] = append([]corev1.Taint{}, d.taints...)
	}
	if d.labels != nil {
		meta["labels"] = d.labels
	}
	if len(spec)+len(meta) == 0 {
		return nil
	}
	if _, err := n.patch(ctx, node, map[string]any{"metadata": meta, "spec": spec}); err != nil {
		return fmt.Errorf("write what the inventory says of node %s: %w", node.Name, err)
	}
	if d.initialized {
		n.Events.Event(node, corev1.EventTypeNormal, "Synced", "Node synced successfully")
	}
	return nil
}

func (n *controller) patch(
	ctx context.Context,
	node *corev1.Node,
	change map[string]any,
	subresource ...string,
) (*corev1.Node, error) {
	meta, _ := change["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"], meta["resourceVersion"] = node.UID, node.ResourceVersion
	change["metadata"] = meta
	text, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	written, err := n.Client.CoreV1().
		Nodes().
		Patch(ctx, node.Name, types.MergePatchType, text, metav1.PatchOptions{}, subresource...)
	if apierrors.IsNotFound(err) {
		return node, nil // the Node was deleted
	}
	return written, err
}

// warn reports a problem of a Node once. An empty text means that there is no problem.
func (n *controller) warn(node *corev1.Node, reason, text string) {
	n.mu.Lock()
	isRepeated := n.warned[node.Name] == text
	if n.warned[node.Name] = text; text == "" {
		delete(n.warned, node.Name)
	}
	n.mu.Unlock()
	if text == "" || isRepeated {
		return
	}
	n.Log.Warn(text, "node", node.Name)
	n.Events.Event(node, corev1.EventTypeWarning, reason, text)
}
