package cloudnode

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/config/inventory"
)

const ownProviderID, formerProviderID = "clusterctl://demo/1", "clusterctl://demo/0"

// node returns the node n1 with addresses from its kubelet.
func node(provider string, ready corev1.ConditionStatus, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "5"},
		Spec:       corev1.NodeSpec{ProviderID: provider},
	}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
		{Type: corev1.NodeHostName, Address: "n1"},
	}
	if ready != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func machines() inventory.Inventory {
	return inventory.Inventory{
		"n1": {
			ProviderID: ownProviderID,
			Addresses:  []string{"10.0.0.1"},
			External:   []string{"203.0.113.1"},
			Region:     "eu",
			Zone:       "a",
		},
		"n2": {ProviderID: "clusterctl://demo/2", Addresses: []string{"10.0.0.2"}},
	}
}

// Proves S22.
func TestOnlyUnreadyNodesWithoutAMachineAreDeleted(t *testing.T) {
	without := machines()
	delete(without, "n1")
	renamed := machines()
	renamed["other"] = renamed["n1"]
	delete(renamed, "n1")
	unknown := machines()
	unknown["n1"] = inventory.Machine{Addresses: []string{"10.0.0.1"}}
	going := func(n *corev1.Node) { now := metav1.Now(); n.DeletionTimestamp = &now }
	for _, c := range []struct {
		name   string
		node   *corev1.Node
		list   inventory.Inventory
		isGone bool
		warn   string
	}{
		{"its machine is there", node(ownProviderID, corev1.ConditionTrue), machines(), false, ""},
		{"its machine is there, and off", node(ownProviderID, corev1.ConditionUnknown), machines(), false, ""},
		{"its machine is gone, and it is ready", node(ownProviderID, corev1.ConditionTrue), without, false, ""},
		{"its machine is gone, and it is silent", node(ownProviderID, corev1.ConditionUnknown), without, true, ""},
		{"its machine is gone, and it is not ready", node(ownProviderID, corev1.ConditionFalse), without, true, ""},
		{"its machine is gone, and it never said anything", node(ownProviderID, ""), without, true, ""},
		{"it is being deleted", node(ownProviderID, corev1.ConditionUnknown, going), without, false, ""},
		{"it was made by hand", node("", corev1.ConditionUnknown), without, false, ""},
		{"it is of another cloud", node("aws:///i-1", corev1.ConditionUnknown), without, false, ""},
		{"its name is a machine's and it is of another cloud", node("aws:///i-1", corev1.ConditionUnknown), machines(),
			false, "ForeignProviderID"},
		{"its machine has another name", node(ownProviderID, corev1.ConditionUnknown), renamed, true, ""},
		{"another machine has its name", node(formerProviderID, corev1.ConditionUnknown), machines(), true, ""},
		{"another machine has its name and runs it", node(formerProviderID, corev1.ConditionTrue), machines(), false,
			"MachineReplaced"},
		{"nobody knows which machine has its name", node(formerProviderID, corev1.ConditionUnknown), unknown, false,
			""},
	} {
		d := decide(c.node, c.list)
		if d.isMachineGone != c.isGone || d.reason != c.warn || (d.warning == "") != (c.warn == "") {
			t.Errorf("%s: gone %v, %s %q", c.name, d.isMachineGone, d.reason, d.warning)
		}
		if d.isMachineGone && d.needsWrite || c.list["n1"].ProviderID != ownProviderID && d.providerID != "" {
			t.Errorf("%s: it is changed as well: %+v", c.name, d)
		}
	}
}

// Proves S22.
func TestNodesGetTheDataOfTheInventory(t *testing.T) {
	d := decide(node("", corev1.ConditionTrue, func(n *corev1.Node) {
		n.Labels = map[string]string{corev1.LabelTopologyZone: "b"}
		n.Spec.Taints = []corev1.Taint{
			{Key: "mine", Effect: corev1.TaintEffectNoSchedule},
			{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule},
		}
	}), machines())
	addresses := []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
		{Type: corev1.NodeExternalIP, Address: "203.0.113.1"},
		{Type: corev1.NodeHostName, Address: "n1"},
	}
	labels := map[string]string{"topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": "a",
		"failure-domain.beta.kubernetes.io/region": "eu", "failure-domain.beta.kubernetes.io/zone": "a"}
	want := decision{
		needsWrite:  true,
		providerID:  ownProviderID,
		addresses:   addresses,
		labels:      labels,
		initialized: true,
		taints:      []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("decided %+v\nwant %+v", d, want)
	}
	// A node that has everything needs no change, even if others have added labels.
	has := node(ownProviderID, corev1.ConditionTrue, func(n *corev1.Node) {
		n.Status.Addresses, n.Labels = addresses, map[string]string{"others": "x"}
		for k, v := range labels {
			n.Labels[k] = v
		}
	})
	if d := decide(has, machines()); d.needsWrite || d.providerID != "" {
		t.Errorf("a node that has everything: %+v", d)
	}
	// Without a zone in the inventory, the labels are not changed. An external address that the inventory does not have
	// is removed.
	list := machines()
	list["n1"] = inventory.Machine{ProviderID: ownProviderID, Addresses: []string{"10.0.0.1"}}
	if d := decide(has, list); d.labels != nil || len(d.addresses) != 2 {
		t.Errorf("a node without zone and external address: %+v", d)
	}
	// Addresses are added only after the kubelet has reported some.
	silent := node("", "", func(n *corev1.Node) { n.Status.Addresses = nil })
	if d := decide(silent, machines()); d.addresses != nil || d.providerID != ownProviderID {
		t.Errorf("a node whose kubelet has said nothing: %+v", d)
	}
	// Addresses of both families stay.
	both := node(ownProviderID, corev1.ConditionTrue, func(n *corev1.Node) {
		n.Status.Addresses = append([]corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "fd00::1"}},
			n.Status.Addresses...)
	})
	var got []string
	for _, a := range decide(both, machines()).addresses {
		got = append(got, a.Address)
	}
	if text := strings.Join(got, " "); text != "fd00::1 10.0.0.1 203.0.113.1 n1" {
		t.Errorf("addresses %s", text)
	}
	// A machine that was never reached has no provider ID yet.
	list["n1"] = inventory.Machine{Addresses: []string{"10.0.0.1"}}
	waiting := node("", corev1.ConditionTrue,
		func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: uninitialized}} })
	if d := decide(waiting, list); d.initialized || d.needsWrite {
		t.Errorf("a node of a machine that was never reached: %+v", d)
	}
}
