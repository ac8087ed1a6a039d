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

// plannedInventory returns the planned inventory of the last run, and checks that every part of the run received the
// same one. A run without changes passes none on.
func (w *world) plannedInventory(from int) inventory.Inventory {
	w.t.Helper()
	planned := w.engine.Config.Inventory
	for _, received := range w.clusterAPI.inventories[from:] {
		if !reflect.DeepEqual(received, planned) {
			w.t.Errorf("a run passed on the machines %v, and planned %v", received, planned)
		}
	}
	return planned
}

// Proves S22.
func TestTheInventoryListsAllMachinesThatStay(t *testing.T) {
	placed := machineA
	placed.Labels = map[string]string{"topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": "a"}
	placed.External = []netip.Addr{netip.MustParseAddr("203.0.113.1")}
	w := newWorld(t, controlMachine, placed, machineB)
	apply := func(names ...string) inventory.Inventory {
		t.Helper()
		from := len(w.clusterAPI.inventories)
		w.mustApply()
		list := w.plannedInventory(from)
		if got := slices.Sorted(maps.Keys(list)); !slices.Equal(got, names) {
			t.Errorf("the inventory has %v, should have %v", got, names)
		}
		return list
	}
	first := apply("a", "b", "control")
	want := inventory.Machine{
		ProviderID: inventory.ProviderID(w.engine.Config.Name, "of "+machineA.IP.String()),
		Roles:      machineA.Roles,
		Addresses:  []string{machineA.IP.String()},
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
	w.declare(controlMachine, placed)
	w.engine.Targets = []string{"machine.a"}
	if list := apply("a", "b", "control"); !reflect.DeepEqual(list, first) {
		t.Errorf("of a run for one machine it is %v, was %v", list, first)
	}
	w.engine.Targets = nil
	// A machine that is unreachable and no longer declared is removed.
	w.unreachable["machine.b"] = errors.New("no route to host")
	apply("a", "control")
	// A reinstalled machine gets another provider ID.
	w.reinstall(machineA, "installed anew")
	if list := apply("a", "control"); list["a"].ProviderID != inventory.ProviderID(w.engine.Config.Name,
		"installed anew") ||
		!reflect.DeepEqual(list["control"], first["control"]) {
		t.Errorf("after an installation it is %v", list)
	}
}

// reinstall reinstalls a machine with another identity.
func (w *world) reinstall(m config.Machine, identity string) {
	facts := w.hostsByIP[m.IP].Machine
	facts.Identity = identity
	w.hostsByIP[m.IP] = &hostfake.Host{Machine: facts}
	w.hosts[m.Address] = w.hostsByIP[m.IP]
}

// A machine with new host keys keeps its provider ID as long as it has the cluster's files. Otherwise its Node would be
// deleted at the next reboot.
// Proves S22.
func TestProviderIDsSurviveNewHostKeys(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	apply := func() string {
		t.Helper()
		w.mustApply()
		return w.engine.Config.Inventory["a"].ProviderID
	}
	first := apply()
	w.hostsByIP[machineA.IP].Machine.Identity = "with new host keys"
	if got := apply(); got != first || got == "" {
		t.Errorf("with new host keys it is %s, was %s", got, first)
	}
	changed := machineA
	changed.Roles, changed.Taints = slices.Clone(machineA.Roles),
		[]config.Taint{{Key: "dedicated", Effect: "NoSchedule"}}
	w.declare(controlMachine, changed, machineB)
	if got := apply(); got != first {
		t.Errorf("after a change of the machine it is %s, was %s", got, first)
	}
	if s := w.state(); s.Machines[machineA.Address].Identity != "with new host keys" {
		t.Errorf("the state knows it as %q", s.Machines[machineA.Address].Identity)
	}
	if got := apply(); got != first {
		t.Errorf("after an apply that knows the new keys it is %s, was %s", got, first)
	}
	// The Node is deleted and created again.
	w.engine.Replaces = []string{machineA.Address}
	replaced := apply()
	w.engine.Replaces = nil
	if got := apply(); got != replaced || got != inventory.ProviderID(w.engine.Config.Name, "with new host keys") {
		t.Errorf("of a machine that was replaced it is %s, was %s", got, replaced)
	}
	w.reinstall(machineA, "installed anew")
	if got := apply(); got != inventory.ProviderID(w.engine.Config.Name, "installed anew") {
		t.Errorf("of another installation it is %s, was %s", got, replaced)
	}
}

// Copies of a disk get different provider IDs when they have different identities.
// Proves S22.
func TestCopiedDisksGetProviderIDsOnceTheyDiffer(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.hostsByIP[machineB.IP].Machine.Identity = w.hostsByIP[machineA.IP].Machine.Identity
	w.mustApply()
	w.hostsByIP[machineB.IP].Machine.Identity = "told apart"
	w.mustApply()
	list := w.engine.Config.Inventory
	if list["a"].ProviderID == "" || list["b"].ProviderID != inventory.ProviderID(w.engine.Config.Name, "told apart") {
		t.Errorf("the inventory is %v", list)
	}
}

// Proves S22.
func TestUndeletedMachinesStayInTheInventory(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	w.declare(controlMachine, machineA)
	w.engine.Config.Removed = []config.Removed{{From: machineB.Address}}
	w.engine.Targets = []string{machineA.Address}
	w.mustApply()
	if _, exists := w.engine.Config.Inventory["b"]; !exists ||
		w.state().Machines[machineB.Address].Machine.Name != "b" {
		t.Errorf("the state has %v, and the inventory %v", sortedKeys(w.state().Machines), w.engine.Config.Inventory)
	}
	w.engine.Targets = nil
	w.mustApply()
	if _, exists := w.engine.Config.Inventory["b"]; exists {
		t.Errorf("it is forgotten, and the inventory is %v", w.engine.Config.Inventory)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Machines that are copies of one disk have no provider ID, because they have the same identity.
// Proves S22.
func TestCopiedDisksHaveNoProviderID(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.hostsByIP[machineB.IP].Machine.Identity = w.hostsByIP[machineA.IP].Machine.Identity
	w.mustApply()
	list := w.plannedInventory(0)
	if list["a"].ProviderID != "" || list["b"].ProviderID != "" || list["control"].ProviderID == "" {
		t.Errorf("the inventory is %v", list)
	}
}
