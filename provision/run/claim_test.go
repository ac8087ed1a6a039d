package run_test

import (
	"errors"
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
)

// While the operator reads a plan, connections may end. They are opened again, and a machine that has become
// unreachable is left out.
func TestConnectionsThatEndBeforeApplyAreReopened(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.engine.Run = "the first run"
	w.mustApply()
	for _, m := range []*config.Machine{&w.engine.Config.Machines[1], &w.engine.Config.Machines[2]} {
		m.Kubelet.Choose("max_pods", 42)
	}
	w.engine.Run = "the second run"
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	w.closeConnections(controlMachine)
	w.closeConnections(machineA)
	w.unreachable[machineB.Address] = errors.New("no route to host")
	w.closeConnections(machineB)
	err = p.Apply(t.Context())
	if err == nil || !strings.Contains(err.Error(), machineB.Address) ||
		strings.Contains(err.Error(), machineA.Address) {
		t.Fatalf("the run says %v", err)
	}
	delete(w.unreachable, machineB.Address)
	w.engine.Run = "the third run"
	again := w.mustApply()
	if m := plannedMachine(again, machineA.Address); m.Action != plan.None {
		t.Errorf("the machine whose connection ended is to %s: %v", m.Action, m.Changes)
	}
	if m := plannedMachine(again, machineB.Address); m.Action != plan.Change {
		t.Errorf("the machine that was lost is to %s", m.Action)
	}
}
