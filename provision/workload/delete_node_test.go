package workload

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/config/inventory"
)

// When a machine was reinstalled, the cluster receives its new identity before its kubelet starts, and the former Node
// is deleted. A Node that is the machine's own, belongs to another cloud or has no provider ID stays.
// Proves S22.
func TestNodesOfFormerMachinesAreDeletedAndReplacedInTheInventory(t *testing.T) {
	now := inventory.Machine{
		ProviderID: "clusterctl://home/new",
		Roles:      []string{"node"},
		Addresses:  []string{"10.0.0.7"},
	}
	for name, c := range map[string]struct {
		current string
		isGone  bool
	}{"the former's": {"clusterctl://home/old", true}, "its own": {now.ProviderID, false},
		"another cloud's": {"aws:///i-1", false}, "nobody's": {"", false}} {
		node := newItem("v1", "Node", "", "n", map[string]any{"spec": map[string]any{"providerID": c.current}})
		newNode := newItem("v1", "ConfigMap", "kube-system", inventory.Name,
			map[string]any{"data": map[string]any{"n": "{}", "other": "{}"}})
		l, client := newFakeLive(node, newNode)
		forgot, err := l.DeleteFormerNode(t.Context(), "n", now)
		if err != nil || forgot != c.isGone {
			t.Errorf("%s: forgot %t, %v", name, forgot, err)
		}
		if _, err := client.Tracker().Get(nodes, "", "n"); apierrors.IsNotFound(err) != c.isGone {
			t.Errorf("%s: of the Node is left: %v", name, err)
		}
		after, err := client.Resource(configMaps).
			Namespace("kube-system").
			Get(t.Context(), inventory.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		data := after.Object["data"].(map[string]any)
		if !strings.Contains(data["n"].(string), now.ProviderID) || data["other"] != "{}" {
			t.Errorf("%s: the inventory says %v", name, data)
		}
	}
	l, _ := newFakeLive()
	if forgot, err := l.DeleteFormerNode(t.Context(), "n", now); err != nil || forgot {
		t.Errorf("where nothing is: %t, %v", forgot, err)
	}
}
