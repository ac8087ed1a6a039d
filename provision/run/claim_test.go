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
func TestConnectionsThatEndWhileThePlanIsReadAreMadeAgain(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
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
	w.cut(control)
	w.cut(nodeA)
	w.down[nodeB.Address] = errors.New("no route to host")
	w.cut(nodeB)
	err = p.Apply(t.Context())
	if err == nil || !strings.Contains(err.Error(), nodeB.Address) || strings.Contains(err.Error(), nodeA.Address) {
		t.Fatalf("the run says %v", err)
	}
	delete(w.down, nodeB.Address)
	w.engine.Run = "the third run"
	again := w.mustApply()
	if m := plannedMachine(again, nodeA.Address); m.Action != plan.None {
		t.Errorf("the machine whose connection ended is to %s: %v", m.Action, m.Changes)
	}
	if m := plannedMachine(again, nodeB.Address); m.Action != plan.Change {
		t.Errorf("the machine that was lost is to %s", m.Action)
	}
}
