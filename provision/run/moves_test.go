package run_test

import (
	"net/netip"
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

var moveSource = config.Source{File: "cluster.hcl", Line: 40}

// addObjects adds objects to the state as if they had been applied.
func (w *world) addObjects(objects ...state.Object) {
	w.t.Helper()
	s, err := w.engine.Store.Read()
	if err != nil {
		w.t.Fatal(err)
	}
	s.Objects = objects
	if err := w.engine.Store.Write(s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) savedState() *state.State {
	w.t.Helper()
	s, err := w.engine.Store.Read()
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// Moved blocks rename objects and machines that neither address nor name identify. They are recorded even if the run
// has nothing else to do.
// Proves P05.
func TestMovedBlocksRenameEntriesOfTheState(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	motd := state.Object{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Namespace:  "x",
		Name:       "motd",
		Address:    "manifests.old[a.yaml#1]",
	}
	w.addObjects(motd)
	motd.Address = "manifests.new[a.yaml#1]"
	w.clusterAPI.objects = []state.Object{motd}
	before := w.logLengths()
	w.engine.Config.Moved = []config.Moved{{From: "manifests.old", To: "manifests.new", Source: moveSource}}
	w.mustApply()
	if s := w.savedState(); s.Objects[0].Address != motd.Address {
		t.Errorf("the state has %+v", s.Objects)
	}
	w.checkUnchanged(before)

	readdressed := machineA
	readdressed.Address, readdressed.IP = "machine.worker", netip.MustParseAddr("10.0.0.9")
	old := w.hostsByIP[machineA.IP]
	old.Machine.Addresses = []string{"10.0.0.9"}
	w.hostsByIP[readdressed.IP] = old
	w.declare(controlMachine, readdressed)
	w.engine.Config.Moved = []config.Moved{{From: "machine.a", To: "machine.worker", Source: moveSource}}
	p := w.mustApply()
	if list := machineActions(p); list["machine.worker"] != plan.Change || len(list) != 2 {
		t.Errorf("planned %v", list)
	}
}

func TestMovesOntoAnotherMachineAreRefused(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	w.engine.Config.Moved = []config.Moved{{From: "machine.a", To: "machine.b", Source: moveSource}}
	if _, err := w.apply(); err == nil ||
		!strings.Contains(err.Error(),
			"cluster.hcl:40: machine.a cannot be called machine.b: that is another machine, at 10.0.0.3") {
		t.Error(err)
	}
}

// A machine or object that a removed block leaves in place stays unchanged and is removed from the state.
// Proves P05.
func TestRemovedBlocksForgetUnchangedObjects(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	kept := state.Object{APIVersion: "v1", Kind: "Namespace", Name: "shop", Address: "object.v1.Namespace.shop"}
	w.addObjects(kept)
	before := w.logLengths()
	w.declare(controlMachine, machineA)
	w.engine.Config.Removed = []config.Removed{{From: "machine.b", Source: moveSource},
		{From: kept.Address, Source: moveSource}}
	p := w.mustApply()
	machines, objects := p.Count(plan.Forget)
	if machines != 1 || objects != 1 || !strings.Contains(p.Summary(), "1 to forget; objects: 1 to forget") {
		t.Errorf("plan: %s", p.Summary())
	}
	w.checkUnchanged(before)
	if len(w.clusterAPI.drained)+len(w.clusterAPI.missing) > 0 ||
		len(w.clusterAPI.previousObjects[len(w.clusterAPI.previousObjects)-1]) > 0 {
		t.Errorf("drained %v, gone %v, pruned among %v", w.clusterAPI.drained, w.clusterAPI.missing,
			w.clusterAPI.previousObjects)
	}
	if s := w.savedState(); len(s.Machines) != 2 || len(s.Objects) != 0 {
		t.Errorf("the state has %v, %v", s.Machines, s.Objects)
	}
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("not empty afterwards: %s", again.Summary())
	}

	w.declare(machineA, machine("other", "10.0.0.7", config.RoleControlPlane))
	w.engine.Config.Removed = []config.Removed{{From: "machine.control", Source: moveSource}}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "of the control plane") {
		t.Errorf("a machine of the control plane is left alone: %v", err)
	}
}

// prevent_destroy applies while the block sets it, and after the block was deleted.
// Proves P05.
func TestProtectedObjectsAreNotRemoved(t *testing.T) {
	kept := machineB
	kept.PreventDestroy = true
	w := newWorld(t, controlMachine, machineA, kept)
	w.mustApply()
	w.addObjects(
		state.Object{
			APIVersion:  "v1",
			Kind:        "ConfigMap",
			Namespace:   "x",
			Name:        "motd",
			Address:     "object.v1.ConfigMap.motd",
			IsProtected: true,
		},
	)
	before := w.logLengths()
	refused := func(what string, texts ...string) {
		t.Helper()
		_, err := w.apply()
		for _, text := range texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %q", what, err, text)
			}
		}
	}
	w.declare(controlMachine, machineA)
	refused("removed", "machine.b: it would be removed, and was applied with prevent_destroy",
		"object.v1.ConfigMap.motd: ConfigMap x/motd would be deleted, and was applied with prevent_destroy")
	w.declare(controlMachine, machineA, kept)
	w.clusterAPI.objects = w.savedState().Objects
	w.engine.Replaces = []string{"machine.b", "object.v1.ConfigMap.motd"}
	refused("replaced", "machine.b (cluster.hcl:7): it says prevent_destroy, and would be replaced",
		"object.v1.ConfigMap.motd: ConfigMap x/motd would be deleted")
	w.engine.Replaces, w.engine.IsDestroy = nil, true
	refused("destroyed", "machine.b (cluster.hcl:7): it says prevent_destroy", "object.v1.ConfigMap.motd")
	w.checkUnchanged(before)

	w.engine.IsDestroy = false
	w.clusterAPI.objects[0].IsProtected = false
	w.declare(controlMachine, machineA, machineB)
	w.mustApply()
	w.declare(controlMachine, machineA)
	w.clusterAPI.objects = nil
	if p := w.mustApply(); machineActions(p)["machine.b"] != plan.Remove {
		t.Errorf("applied without, and still kept: %v", machineActions(p))
	}
}

// What contains data is only deleted if the user names it, and otherwise the run stops before any change.
// Proves S37.
func TestDataLossNeedsTheNameOfTheObject(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	shop := state.Object{APIVersion: "v1", Kind: "Namespace", Name: "shop", Address: `manifests.all[shop.yaml#1]`}
	w.addObjects(shop)
	w.declare(controlMachine, machineA, machineB)
	before := w.logLengths()
	_, err := w.apply()
	if err == nil ||
		!strings.Contains(err.Error(), "Namespace shop would be deleted, and everything in the namespace is deleted "+
			"with it. If that is meant, say so: -allow-data-loss 'manifests.all[shop.yaml#1]'") {
		t.Fatal(err)
	}
	w.checkUnchanged(before)
	w.engine.AllowedLosses = []string{"manifests.other"}
	if _, err := w.apply(); err == nil {
		t.Fatal("another address allows it")
	}
	w.engine.AllowedLosses = []string{"manifests.all"}
	w.mustApply()
}
