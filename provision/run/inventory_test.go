package run_test

import (
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"clusterctl/daemons/config/inventory"
)

// told is the inventory of the last run, which all parts of that were told of alike. Where nothing is to be done nothing is told.
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

func TestTheInventoryHasEveryMachineThatARunDoesNotRemoveS22(t *testing.T) {
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
	want := inventory.Machine{ProviderID: inventory.ProviderID(w.engine.Config.Name, "of "+nodeA.IP.String()), Roles: nodeA.Roles, Addresses: []string{nodeA.IP.String()},
		External: []string{"203.0.113.1"}, Region: "eu", Zone: "a"}
	if got := first["a"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the inventory says %+v\nshould say %+v", got, want)
	}
	if again := apply("a", "b", "control"); !reflect.DeepEqual(again, first) {
		t.Errorf("it has changed without a reason: %v, was %v", again, first)
	}
	// A run for one machine does not take out others, whether they are declared by now or not.
	w.declare(control, placed)
	w.engine.Targets = []string{"machine.a"}
	if list := apply("a", "b", "control"); !reflect.DeepEqual(list, first) {
		t.Errorf("of a run for one machine it is %v, was %v", list, first)
	}
	w.engine.Targets = nil
	// Dead, and no longer declared: it goes.
	w.down["machine.b"] = errors.New("no route to host")
	apply("a", "control")
	// The installation under a name is another one.
	w.at[nodeA.IP].Machine.Identity = "installed anew"
	if list := apply("a", "control"); list["a"].ProviderID != inventory.ProviderID(w.engine.Config.Name, "installed anew") || !reflect.DeepEqual(list["control"], first["control"]) {
		t.Errorf("after an installation it is %v", list)
	}
}

// Machines that are copies of one disk cannot be told apart.
func TestCopiesOfOneDiskHaveNoProviderIDS22(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	w.at[nodeB.IP].Machine.Identity = w.at[nodeA.IP].Machine.Identity
	w.mustApply()
	list := w.told(0)
	if list["a"].ProviderID != "" || list["b"].ProviderID != "" || list["control"].ProviderID == "" {
		t.Errorf("the inventory is %v", list)
	}
}
