package run_test

import (
	"net/netip"
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

var said = config.Source{File: "cluster.hcl", Line: 40}

// remember adds objects to the state as if they had been applied.
func (w *world) remember(objects ...state.Object) {
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

func (w *world) known() *state.State {
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
func TestMovedBlocksRenameWhatTheStateKnows(t *testing.T) {
	w := newWorld(t, control, nodeA)
	w.mustApply()
	motd := state.Object{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Namespace:  "x",
		Name:       "motd",
		Address:    "manifests.old[a.yaml#1]",
	}
	w.remember(motd)
	motd.Address = "manifests.new[a.yaml#1]"
	w.live.objects = []state.Object{motd}
	before := w.logged()
	w.engine.Config.Moved = []config.Moved{{From: "manifests.old", To: "manifests.new", Source: said}}
	w.mustApply()
	if s := w.known(); s.Objects[0].Address != motd.Address {
		t.Errorf("the state has %+v", s.Objects)
	}
	w.unchanged(before)

	readdressed := nodeA
	readdressed.Address, readdressed.IP = "machine.worker", netip.MustParseAddr("10.0.0.9")
	was := w.at[nodeA.IP]
	was.Machine.Addresses = []string{"10.0.0.9"}
	w.at[readdressed.IP] = was
	w.declare(control, readdressed)
	w.engine.Config.Moved = []config.Moved{{From: "machine.a", To: "machine.worker", Source: said}}
	p := w.mustApply()
	if list := actions(p); list["machine.worker"] != plan.Change || len(list) != 2 {
		t.Errorf("planned %v", list)
	}
}

func TestAMoveOntoAnotherMachineIsRefused(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	w.mustApply()
	w.engine.Config.Moved = []config.Moved{{From: "machine.a", To: "machine.b", Source: said}}
	if _, err := w.apply(); err == nil ||
		!strings.Contains(
			err.Error(),
			"cluster.hcl:40: machine.a cannot be called machine.b: that is another machine, at 10.0.0.3",
		) {
		t.Error(err)
	}
}

// A machine or object that a removed block leaves in place stays unchanged and is removed from the state.
// Proves P05.
func TestWhatIsLeftAsItIsIsForgotten(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	w.mustApply()
	kept := state.Object{APIVersion: "v1", Kind: "Namespace", Name: "shop", Address: "object.v1.Namespace.shop"}
	w.remember(kept)
	before := w.logged()
	w.declare(control, nodeA)
	w.engine.Config.Removed = []config.Removed{{From: "machine.b", Source: said}, {From: kept.Address, Source: said}}
	p := w.mustApply()
	machines, objects := p.Count(plan.Forget)
	if machines != 1 || objects != 1 || !strings.Contains(p.Summary(), "1 to forget; objects: 1 to forget") {
		t.Errorf("plan: %s", p.Summary())
	}
	w.unchanged(before)
	if len(w.live.drained)+len(w.live.gone) > 0 || len(w.live.before[len(w.live.before)-1]) > 0 {
		t.Errorf("drained %v, gone %v, pruned among %v", w.live.drained, w.live.gone, w.live.before)
	}
	if s := w.known(); len(s.Machines) != 2 || len(s.Objects) != 0 {
		t.Errorf("the state has %v, %v", s.Machines, s.Objects)
	}
	if again := w.mustApply(); !again.Empty() {
		t.Errorf("not empty afterwards: %s", again.Summary())
	}

	w.declare(nodeA, machine("other", "10.0.0.7", config.RoleControlPlane))
	w.engine.Config.Removed = []config.Removed{{From: "machine.control", Source: said}}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "of the control plane") {
		t.Errorf("a machine of the control plane is left alone: %v", err)
	}
}

// prevent_destroy applies while the block sets it, and after the block was deleted.
// Proves P05.
func TestWhatIsProtectedIsNotTakenAway(t *testing.T) {
	kept := nodeB
	kept.PreventDestroy = true
	w := newWorld(t, control, nodeA, kept)
	w.mustApply()
	w.remember(
		state.Object{
			APIVersion: "v1",
			Kind:       "ConfigMap",
			Namespace:  "x",
			Name:       "motd",
			Address:    "object.v1.ConfigMap.motd",
			Protected:  true,
		},
	)
	before := w.logged()
	refused := func(what string, texts ...string) {
		t.Helper()
		_, err := w.apply()
		for _, text := range texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %q", what, err, text)
			}
		}
	}
	w.declare(control, nodeA)
	refused(
		"removed",
		"machine.b: it would be removed, and was applied with prevent_destroy",
		"object.v1.ConfigMap.motd: ConfigMap x/motd would be deleted, and was applied with prevent_destroy",
	)
	w.declare(control, nodeA, kept)
	w.live.objects = w.known().Objects
	w.engine.Replaces = []string{"machine.b", "object.v1.ConfigMap.motd"}
	refused(
		"replaced",
		"machine.b (cluster.hcl:7): it says prevent_destroy, and would be replaced",
		"object.v1.ConfigMap.motd: ConfigMap x/motd would be deleted",
	)
	w.engine.Replaces, w.engine.Destroy = nil, true
	refused("destroyed", "machine.b (cluster.hcl:7): it says prevent_destroy", "object.v1.ConfigMap.motd")
	w.unchanged(before)

	w.engine.Destroy = false
	w.live.objects[0].Protected = false
	w.declare(control, nodeA, nodeB)
	w.mustApply()
	w.declare(control, nodeA)
	w.live.objects = nil
	if p := w.mustApply(); actions(p)["machine.b"] != plan.Remove {
		t.Errorf("applied without, and still kept: %v", actions(p))
	}
}

// What contains data is only deleted if the user names it, and otherwise the run stops before any change.
// Proves S37.
func TestDataIsLostOnlyWhereItIsNamed(t *testing.T) {
	w := newWorld(t, control, nodeA)
	w.mustApply()
	shop := state.Object{APIVersion: "v1", Kind: "Namespace", Name: "shop", Address: `manifests.all[shop.yaml#1]`}
	w.remember(shop)
	w.declare(control, nodeA, nodeB)
	before := w.logged()
	_, err := w.apply()
	if err == nil ||
		!strings.Contains(
			err.Error(),
			"Namespace shop would be deleted, and everything in the namespace is deleted with it. If that is meant, "+
				"say so: -allow-data-loss 'manifests.all[shop.yaml#1]'",
		) {
		t.Fatal(err)
	}
	w.unchanged(before)
	w.engine.Losses = []string{"manifests.other"}
	if _, err := w.apply(); err == nil {
		t.Fatal("another address allows it")
	}
	w.engine.Losses = []string{"manifests.all"}
	w.mustApply()
}
