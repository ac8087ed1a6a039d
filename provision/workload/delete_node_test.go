package workload

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

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

// A machine that is removed while it is dead leaves no pods, so that their controllers replace them at once. Pods of
// other nodes, and a pod that has the same name since, stay.
// Proves S22.
func TestPodsOfADeletedNodeAreDeletedAtOnce(t *testing.T) {
	pod := func(name, node string) *unstructured.Unstructured {
		return newItem("v1", "Pod", "default", name, map[string]any{"spec": map[string]any{"nodeName": node}})
	}
	l, client := newFakeLive(newItem("v1", "Node", "", "n", nil), pod("web", "n"), pod("elsewhere", "other"),
		pod("waiting", ""), pod("replaced", "n"))
	var refused []string
	client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		d := a.(clienttesting.DeleteActionImpl)
		if o := d.DeleteOptions; o.GracePeriodSeconds == nil || *o.GracePeriodSeconds != 0 || o.Preconditions == nil {
			t.Errorf("%s is deleted with %+v", d.Name, o)
		}
		if d.Name != "replaced" {
			return false, nil, nil
		}
		refused = append(refused, d.Name)
		return true, nil, apierrors.NewConflict(pods.GroupResource(), d.Name, errors.New("another UID"))
	})
	for range 2 { // again after an interruption
		if err := l.DeleteNode(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
	}
	for name, isDeleted := range map[string]bool{"web": true, "elsewhere": false, "waiting": false, "replaced": false} {
		if _, err := client.Tracker().Get(pods, "default", name); apierrors.IsNotFound(err) != isDeleted {
			t.Errorf("pod %s: %v", name, err)
		}
	}
	if len(refused) != 2 {
		t.Errorf("refused %v", refused)
	}
}
