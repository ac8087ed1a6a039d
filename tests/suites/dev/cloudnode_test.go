package dev

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/config/inventory"
)

// Proves S22.
func TestNodesFollowTheInventoryOfMachines(t *testing.T) {
	t.Parallel()
	maps := sharedClient.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	t.Cleanup(func() { _ = maps.Delete(context.WithoutCancel(t.Context()), inventory.Name, metav1.DeleteOptions{}) })
	encoded := func(list inventory.Inventory) map[string]string {
		t.Helper()
		return must[map[string]string](t)(list.Encode())
	}
	rack := inventory.Machine{
		ProviderID: inventory.ProviderID("dev", "rack"),
		Roles:      []string{"node"},
		Addresses:  []string{"10.9.0.1"},
		External:   []string{"203.0.113.9"},
		Region:     "eu",
		Zone:       "a",
	}
	shelf := inventory.Machine{
		ProviderID: inventory.ProviderID("dev", "shelf"),
		Roles:      []string{"node"},
		Addresses:  []string{"10.9.0.2"},
	}
	nodes := sharedClient.CoreV1().Nodes()
	for _, name := range []string{"rack", "by-hand"} {
		silentNode(t, name)
	}
	report := `{"status":{"addresses":[{"type":"InternalIP","address":"10.9.0.1"},{"type":"Hostname","address":"rack"}]}}`
	must[*corev1.Node](t)(nodes.Patch(t.Context(), "rack", types.MergePatchType, []byte(report), metav1.PatchOptions{},
		"status"))
	setInventory(t, encoded(inventory.Inventory{"rack": rack, "shelf": shelf}))
	waitFor(t, "the node to have what the inventory says", func(ctx context.Context) (bool, any) {
		n := must[*corev1.Node](t)(nodes.Get(ctx, "rack", metav1.GetOptions{}))
		want := []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "10.9.0.1"},
			{Type: corev1.NodeExternalIP, Address: "203.0.113.9"},
			{Type: corev1.NodeHostName, Address: "rack"},
		}
		return n.Spec.ProviderID == rack.ProviderID && n.Labels[corev1.LabelTopologyZone] == "a" &&
				n.Labels[corev1.LabelTopologyRegion] == "eu" &&
				slices.Equal(n.Status.Addresses, want), []any{
				n.Spec.ProviderID,
				n.Labels,
				n.Status.Addresses,
			}
	})
	for _, name := range []string{"rack", "by-hand"} {
		waitFor(t, name+" to be taken for lost", func(ctx context.Context) (bool, any) {
			n := must[*corev1.Node](t)(nodes.Get(ctx, name, metav1.GetOptions{}))
			return hasTaint(n, corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute), n.Spec.Taints
		})
	}
	// An inventory that is invalid, empty or missing has no effect on nodes.
	checkInvalidInventories(t)
	if err := maps.Delete(t.Context(), inventory.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	holdFor(t, "the node stays", func(ctx context.Context) (bool, any) {
		_, err := nodes.Get(ctx, "rack", metav1.GetOptions{})
		return err == nil, err
	})
	setInventory(t, encoded(inventory.Inventory{"shelf": shelf}))
	waitFor(t, "the node of the removed machine to be deleted", func(ctx context.Context) (bool, any) {
		n, err := nodes.Get(ctx, "rack", metav1.GetOptions{})
		return isGone(n, err)
	})
	waitFor(t, "the event of it", func(ctx context.Context) (bool, any) {
		list := must[*corev1.EventList](t)(
			sharedClient.CoreV1().
				Events("").
				List(ctx, metav1.ListOptions{FieldSelector: "reason=DeletingNode,involvedObject.name=rack"}),
		)
		return len(list.Items) == 1 && list.Items[0].Source.Component == "cloud-node-controller", list.Items
	})
	must[*corev1.Node](t)(nodes.Get(t.Context(), "by-hand", metav1.GetOptions{}))
}

// checkInvalidInventories checks that an invalid or empty inventory is reported.
func checkInvalidInventories(t *testing.T) {
	for reason, data := range map[string]map[string]string{"unexpected EOF": {"shelf": "{"}, "it is empty": {}} {
		setInventory(t, data)
		waitFor(t, "an event with the reason", func(ctx context.Context) (bool, any) {
			list := must[*corev1.EventList](t)(
				sharedClient.CoreV1().
					Events("").
					List(ctx, metav1.ListOptions{
						FieldSelector: "reason=InventoryUnavailable,involvedObject.name=rack"}),
			)
			return slices.ContainsFunc(list.Items,
				func(e corev1.Event) bool { return strings.HasSuffix(e.Message, reason) }), list.Items
		})
	}
}

// setInventory creates or updates the inventory.
func setInventory(t *testing.T, data map[string]string) {
	t.Helper()
	maps := sharedClient.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	m, err := maps.Get(t.Context(), inventory.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		m = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: inventory.Name}, Data: data}
		must[*corev1.ConfigMap](t)(maps.Create(t.Context(), m, metav1.CreateOptions{}))
		return
	} else if err != nil {
		t.Fatal(err)
	}
	m.Data = data
	must[*corev1.ConfigMap](t)(maps.Update(t.Context(), m, metav1.UpdateOptions{}))
}
