package cloudnode

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/config/inventory"
)

// Reasons why the inventory cannot be used, as labels of the metric.
const (
	reasonUsable  = ""
	reasonMissing = "Missing"
	reasonInvalid = "Invalid"
	reasonOlder   = "Older"
)

var unusableReasons = []string{reasonMissing, reasonInvalid, reasonOlder}

// newUnusableGauge returns the metric of why the inventory cannot be used. It has all reasons from the start.
func newUnusableGauge() *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cloud_node_inventory_error", Help: "1 while nothing is decided about machines because their inventory " +
			"cannot be used, by reason; else 0.",
	}, []string{"reason"})
	for _, r := range unusableReasons {
		g.WithLabelValues(r)
	}
	return g
}

// reportInventory reports in the metric whether the inventory can be used. If news, it also records an event for the
// ConfigMap, even if that is missing. A missing inventory is not reported in a cluster that never had one.
func (n *controller) reportInventory(reason, cause string, news bool) {
	if reason == reasonMissing && !n.hadInventory() {
		reason = reasonUsable
	}
	for _, r := range unusableReasons {
		value := 0.
		if r == reason {
			value = 1
		}
		n.unusable.WithLabelValues(r).Set(value)
	}
	if reason == reasonUsable || !news {
		return
	}
	objectReference := &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Namespace:  metav1.NamespaceSystem,
		Name:       inventory.Name,
	}
	if m, err := n.maps.ConfigMaps(objectReference.Namespace).Get(objectReference.Name); err == nil {
		objectReference.UID, objectReference.ResourceVersion = m.UID, m.ResourceVersion
	}
	n.Events.Eventf(objectReference, corev1.EventTypeWarning, "InvalidInventory",
		"Nothing is decided about machines, because their inventory cannot be used: %s", cause)
}

// hadInventory reports whether there was an inventory: this process read one, or a Node has a provider ID from one.
func (n *controller) hadInventory() bool {
	n.mu.Lock()
	seen := n.maxSeenVersion > 0
	n.mu.Unlock()
	all, err := n.nodes.List(labels.Everything())
	if seen || err != nil {
		return true
	}
	for _, node := range all {
		if strings.HasPrefix(node.Spec.ProviderID, inventory.Scheme) {
			return true
		}
	}
	return false
}
