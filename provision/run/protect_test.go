package run_test

import (
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// prevent_destroy applies as soon as the configuration contains it, even before the first apply with it.
func TestProtectionHoldsBeforeItIsApplied(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	motd := state.Object{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Namespace:  "x",
		Name:       "motd",
		Address:    "object.v1.ConfigMap.motd",
	}
	w.addObjects(motd)
	motd.IsProtected = true
	w.clusterAPI.objects = []state.Object{motd}
	before := w.logLengths()
	refused := func(what string) {
		t.Helper()
		if _, err := w.apply(); err == nil ||
			!strings.Contains(err.Error(),
				"object.v1.ConfigMap.motd: ConfigMap x/motd would be deleted, and its block says prevent_destroy") {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.engine.IsDestroy = true
	refused("destroyed")
	w.engine.IsDestroy, w.engine.Replaces = false, []string{motd.Address}
	refused("replaced")
	w.checkUnchanged(before)
}

// A namespace is deleted with its objects, so a declared object in it that sets prevent_destroy keeps it from being
// deleted.
func TestNamespacesOfProtectedObjectsStay(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	shop := state.Object{APIVersion: "v1", Kind: "Namespace", Name: "shop", Address: "object.v1.Namespace.shop"}
	orders := state.Object{
		APIVersion:  "v1",
		Kind:        "PersistentVolumeClaim",
		Namespace:   "shop",
		Name:        "orders",
		Address:     "object.v1.PersistentVolumeClaim.orders",
		IsProtected: true,
	}
	w.addObjects(shop, orders)
	w.clusterAPI.objects = []state.Object{orders}
	w.engine.AllowedLosses = []string{shop.Address}
	before := w.logLengths()
	if _, err := w.apply(); err == nil ||
		!strings.Contains(err.Error(), "object.v1.Namespace.shop: Namespace shop would be deleted, and with it "+
			"PersistentVolumeClaim shop/orders (object.v1.PersistentVolumeClaim.orders)") {
		t.Error(err)
	}
	w.checkUnchanged(before)
}

// destroy refuses to remove a part of a cluster that continues to exist. It neither removes machines in good order nor
// removes objects by their blocks.
func TestPartsOfALivingClusterAreNotDestroyed(t *testing.T) {
	second, third := machine("second", "10.0.0.8", config.RoleControlPlane), machine("third", "10.0.0.9",
		config.RoleControlPlane)
	w := newWorld(t, controlMachine, second, third, machineA)
	w.mustApply()
	w.addObjects(
		state.Object{
			APIVersion: "v1",
			Kind:       "ConfigMap",
			Namespace:  "x",
			Name:       "motd",
			Address:    "object.v1.ConfigMap.motd",
		},
	)
	before := w.logLengths()
	w.engine.IsDestroy = true
	refused := func(text string) {
		t.Helper()
		if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	w.engine.Targets = []string{"machine.a"}
	refused("destroy -target: the cluster lives on without machine.a")
	w.engine.Targets = []string{"machine.control", "machine.second"}
	refused("destroy -target: the cluster lives on without machine.control, machine.second")
	w.engine.Targets = []string{"object.v1.ConfigMap.motd"}
	refused("destroy takes machines away, and what is in the cluster with the last one of them")
	w.engine.Targets, w.engine.Excludes = nil, []string{"machine.control", "machine.third"}
	refused("destroy -exclude: the cluster lives on without machine.a, machine.second")
	w.checkUnchanged(before)

	w.engine.Excludes = []string{"machine.third"} // for example because it is unreachable
	w.mustApply()
	if s := w.savedState(); len(s.Machines) != 1 {
		t.Errorf("the state has %v", s.Machines)
	}
}
