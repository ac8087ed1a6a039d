package run_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/run"
	"clusterctl/provision/state"
)

// newOperator returns an engine with a copy of the configuration and state, as on another operator's computer.
func (w *world) newOperator(name string) *run.Engine {
	w.t.Helper()
	e := *w.engine
	dir := filepath.Join(w.t.TempDir(), "state")
	if err := os.CopyFS(dir, os.DirFS(w.engine.Store.Dir)); err != nil {
		w.t.Fatal(err)
	}
	e.Store = state.Store{Dir: dir, Sealer: w.engine.Store.Sealer}
	e.Run, e.Operator = "the run of "+name, name
	return &e
}

// Two operators have separate copies of the configuration, whose locks do not conflict. The second to reach a machine
// gets an error that names the first. It changes nothing there with a plan that was made before the first run.
// Proves P02.
func TestConcurrentOperatorsAreNamedToEachOther(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.engine.Run, w.engine.Operator = "the first run", "root@first"
	w.mustApply()
	grown := machineA
	grown.Kubelet.Choose("max_pods", 42)
	w.declare(controlMachine, grown)
	second := w.newOperator("root@second")

	mine, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	if mine.Plan.IsEmpty() {
		t.Fatal("nothing is to be changed")
	}
	theirs, err := second.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := theirs.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	did := len(w.hosts["machine.a"].Log)
	err = mine.Apply(t.Context())
	if err == nil ||
		!strings.Contains(err.Error(),
			"another run, of root@second, has changed this machine since this one looked at it") {
		t.Fatalf("the second operator is not reported to the first: %v", err)
	}
	if now := w.hosts["machine.a"].Log; len(now) != did {
		t.Errorf("and yet was changed: %q", now[did:])
	}
	if !w.mustApply().IsEmpty() { // after another plan it succeeds
		t.Error("something is left to do")
	}
}

// Two operators apply different configurations at the same time, again and again. Each time the machine ends with the
// complete configuration of one of them.
func TestConcurrentOperatorsLeaveOneDeclaredState(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.engine.Run, w.engine.Operator = "the first run", "root@first"
	w.mustApply()
	engines := []*run.Engine{w.newOperator("root@one"), w.newOperator("root@two")}
	for turn := range 4 {
		var wait sync.WaitGroup
		for i, e := range engines {
			c := *w.engine.Config
			node := machineA
			node.Kubelet.Choose("max_pods", 50+10*turn+i)
			c.Machines = []config.Machine{controlMachine, node}
			e.Config, e.Run = &c, fmt.Sprintf("run %d of %d", turn, i)
			wait.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				p, err := e.Prepare(ctx)
				if err != nil {
					t.Errorf("%s: %v", e.Operator, err)
					return
				}
				defer p.Close()
				if err := p.Apply(ctx); err != nil && !strings.Contains(err.Error(), "another run, of ") {
					t.Errorf("%s: %v", e.Operator, err)
				}
			})
		}
		wait.Wait()
	}
	e := engines[0]
	e.Run = "the last run"
	p, err := e.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	steps, err := e.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer steps.Close()
	if !steps.Plan.IsEmpty() {
		t.Error("something is left to do")
	}
}
