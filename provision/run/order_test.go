package run_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/state"
)

// The plan names its stages, and apply follows them: no machine of a stage begins before all machines of the previous
// stage are done.
// Proves P02.
func TestMachinesChangeInTheOrderOfThePlan(t *testing.T) {
	c := machine("c", "10.0.0.6", config.RoleNode)
	w := newWorld(t, append(threeControl(), c)...)
	store := hostfake.NewEtcd("c1", "c2", "c3")
	for _, h := range w.hostsByIP {
		h.Store = store
	}
	w.clusterAPI.objects = []state.Object{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", Address: "object.x"}}
	w.clusterAPI.planResult = []plan.Object{{Address: "object.x", Kind: "ConfigMap", Name: "x", Action: plan.Create}}
	w.clusterAPI.nodeStatus = map[string]string{"a": "True", "b": "True", "c": "True"}
	w.setRelease("v1.0.0")
	if p := w.mustApply(); !slices.Equal(stageSummaries(p),
		[]string{"Send programs and: 6 0 0 false", "Set up all: 6 0 0 false", "Apply objects as: 0 1 0 true"}) {
		t.Errorf("of a new cluster: %q", stageSummaries(p))
	}
	w.setRelease("v2.0.0")
	w.declare(append(threeControl(), machine("d", "10.0.0.7", config.RoleNode))...)
	w.engine.Config.Roll = config.Roll{Hold: 100 * time.Millisecond, Timeout: time.Minute}
	type event struct{ kind, machine string }
	var mu sync.Mutex
	var events []event
	w.engine.Report = func(e report.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, event{e.Kind, e.Machine})
	}
	p := w.mustApply()
	want := []string{
		"Send programs and: 6 0 0 false",
		"Change the control: 3 0 1 false",
		"Apply objects as: 0 1 0 true",
		"Set up new: 1 0 0 false",
		"Change one node: 1 0 1 false",
		"Change nodes on: 1 0 1 false",
		"Remove machines: drain: 1 0 1 false",
	}
	if got := stageSummaries(p); !slices.Equal(got, want) {
		t.Errorf("the stages are %q", got)
	}
	done := 0 // end of the previous stage
	for _, s := range p.Stages[1:] {
		end := done
		for _, address := range s.Machines {
			started := slices.Index(events, event{report.Begin, address})
			if started < done {
				t.Errorf("%s of %q is begun at event %d, before the stage before it is over, at %d: %v", address,
					s.Title, started, done, events)
			}
			end = max(end, slices.Index(events, event{report.Done, address}))
		}
		done = end
	}
	if p := w.mustApply(); len(p.Stages) != 1 || !p.Stages[0].InParallel {
		t.Errorf("with an object alone to make: %q", stageSummaries(p))
	}
	w.engine.IsDestroy = true
	if p := w.mustApply(); !slices.Equal(stageSummaries(p), []string{"Clean the machines: 6 0 0 false"}) {
		t.Errorf("of destroying: %q", stageSummaries(p))
	}
}

// stageSummaries returns a summary of a plan's stages: the title, the numbers of machines and objects, and how many
// machines change at once.
func stageSummaries(p *plan.Plan) (list []string) {
	for _, s := range p.Stages {
		words := strings.Fields(s.Title)
		list = append(list, fmt.Sprintf("%s: %d %d %d %t", strings.Join(words[:min(len(words), 3)], " "),
			len(s.Machines), s.Objects, s.Parallelism, s.InParallel))
	}
	return list
}
