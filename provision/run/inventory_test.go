package run_test

import (
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"clusterctl/daemons/config/inventory"
	"clusterctl/hcl/config"
	"clusterctl/provision/host/hostfake"
)

// told returns the planned inventory of the last run, and checks that every part of the run received the same one. A
// run without changes passes none on.
func (w *world) told(from int) inventory.Inventory {
	w.t.Helper()
	planned := w.engine.Config.Inventory
	for _, told := range w.live.inventories[from:] {
		if !reflect.DeepEqual(told, planned) {
			w.t.Errorf("a run has told of machines %v, and planned %v", told, planned)
		}
	}
	return planned
}

// Proves S22.
func TestTheInventoryHasEveryMachineThatARunDoesNotRemove(t *testing.T) {
	placed := nodeA
	placed.Labels = map[string]string{"topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": "a"}
	placed.External = []netip.Addr{netip.MustParseAddr("203.0.113.1")}
	w := newWorld(t, control, placed, nodeB)
	apply := func(names ...string) inventory.Inventory {
		t.Helper()
		from := len(w.live.inventories)
		w.mustApply()
		list := w.told(from)
		if got := slices.Sorted(maps.Keys(list)); !slices.Equal(got, names) {
			t.Errorf("the inventory has %v, should have %v", got, names)
		}
		return list
	}
	first := apply("a", "b", "control")
	want := inventory.Machine{
		ProviderID: inventory.ProviderID(w.engine.Config.Name, "of "+nodeA.IP.String()),
		Roles:      nodeA.Roles,
		Addresses:  []string{nodeA.IP.String()},
		External:   []string{"203.0.113.1"},
		Region:     "eu",
		Zone:       "a",
	}
	if got := first["a"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the inventory says %+v\nshould say %+v", got, want)
	}
	if again := apply("a", "b", "control"); !reflect.DeepEqual(again, first) {
		t.Errorf("it has changed without a reason: %v, was %v", again, first)
	}
	// A run for one machine does not remove others from the inventory, even if they are no longer declared.
	w.declare(control, placed)
	w.engine.Targets = []string{"machine.a"}
	if list := apply("a", "b", "control"); !reflect.DeepEqual(list, first) {
		t.Errorf("of a run for one machine it is %v, was %v", list, first)
	}
	w.engine.Targets = nil
	// A machine that is unreachable and no longer declared is removed.
	w.down["machine.b"] = errors.New("no route to host")
	apply("a", "control")
	// A reinstalled machine gets another provider ID.
	w.install(nodeA, "installed anew")
	if list := apply("a", "control"); list["a"].ProviderID != inventory.ProviderID(
		w.engine.Config.Name,
		"installed anew",
	) ||
		!reflect.DeepEqual(list["control"], first["control"]) {
		t.Errorf("after an installation it is %v", list)
	}
}

// install reinstalls a machine with another identity.
func (w *world) install(m config.Machine, identity string) {
	facts := w.at[m.IP].Machine
	facts.Identity = identity
	w.at[m.IP] = &hostfake.Host{Machine: facts}
	w.hosts[m.Address] = w.at[m.IP]
}

// A machine with new host keys keeps its provider ID as long as it has the cluster's files. Otherwise its Node would be
// deleted at the next reboot.
// Proves S22.
func TestAProviderIDOutlivesNewHostKeys(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	apply := func() string {
		t.Helper()
		w.mustApply()
		return w.engine.Config.Inventory["a"].ProviderID
	}
	first := apply()
	w.at[nodeA.IP].Machine.Identity = "with new host keys"
	if is := apply(); is != first || is == "" {
		t.Errorf("with new host keys it is %s, was %s", is, first)
	}
	changed := nodeA
	changed.Roles, changed.Taints = slices.Clone(nodeA.Roles), []config.Taint{{Key: "dedicated", Effect: "NoSchedule"}}
	w.declare(control, changed, nodeB)
	if is := apply(); is != first {
		t.Errorf("after a change of the machine it is %s, was %s", is, first)
	}
	if s := w.state(); s.Machines[nodeA.Address].Identity != "with new host keys" {
		t.Errorf("the state knows it as %q", s.Machines[nodeA.Address].Identity)
	}
	if is := apply(); is != first {
		t.Errorf("after an apply that knows the new keys it is %s, was %s", is, first)
	}
	// The Node is deleted and created again.
	w.engine.Replaces = []string{nodeA.Address}
	replaced := apply()
	w.engine.Replaces = nil
	if is := apply(); is != replaced || is != inventory.ProviderID(w.engine.Config.Name, "with new host keys") {
		t.Errorf("of a machine that was replaced it is %s, was %s", is, replaced)
	}
	w.install(nodeA, "installed anew")
	if is := apply(); is != inventory.ProviderID(w.engine.Config.Name, "installed anew") {
		t.Errorf("of another installation it is %s, was %s", is, replaced)
	}
}

// Copies of a disk get different provider IDs when they have different identities.
// Proves S22.
func TestCopiesHaveProviderIDsOnceTheyAreToldApart(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	w.at[nodeB.IP].Machine.Identity = w.at[nodeA.IP].Machine.Identity
	w.mustApply()
	w.at[nodeB.IP].Machine.Identity = "told apart"
	w.mustApply()
	list := w.engine.Config.Inventory
	if list["a"].ProviderID == "" || list["b"].ProviderID != inventory.ProviderID(w.engine.Config.Name, "told apart") {
		t.Errorf("the inventory is %v", list)
	}
}

// Proves S22.
func TestARunThatDoesNotForgetAMachineKeepsItInTheInventory(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	w.mustApply()
	w.declare(control, nodeA)
	w.engine.Config.Removed = []config.Removed{{From: nodeB.Address}}
	w.engine.Targets = []string{nodeA.Address}
	w.mustApply()
	if _, there := w.engine.Config.Inventory["b"]; !there || w.state().Machines[nodeB.Address].Machine.Name != "b" {
		t.Errorf("the state has %v, and the inventory %v", sortedKeys(w.state().Machines), w.engine.Config.Inventory)
	}
	w.engine.Targets = nil
	w.mustApply()
	if _, there := w.engine.Config.Inventory["b"]; there {
		t.Errorf("it is forgotten, and the inventory is %v", w.engine.Config.Inventory)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Machines that are copies of one disk have no provider ID, because they have the same identity.
// Proves S22.
func TestCopiesOfOneDiskHaveNoProviderID(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	w.at[nodeB.IP].Machine.Identity = w.at[nodeA.IP].Machine.Identity
	w.mustApply()
	list := w.told(0)
	if list["a"].ProviderID != "" || list["b"].ProviderID != "" || list["control"].ProviderID == "" {
		t.Errorf("the inventory is %v", list)
	}
}
