package run_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/state"
)

// A replaced machine is drained, cleaned and created again in one run.
// Proves P02.
func TestReplacedNodesAreCleanedAndRecreated(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	h := w.hosts["machine.b"]
	if err := h.WriteFile("/var/lib/kubelet/left", strings.NewReader("x"), 0o600, 0, 0); err != nil {
		t.Fatal(err)
	}
	w.clusterAPI.nodeStatus = map[string]string{"a": "True", "b": "True"}
	w.engine.Replaces = []string{"machine.b"}
	var messages []string
	w.engine.Report = func(e report.Event) {
		if e.Kind != report.Step && e.Kind != report.Send && e.Kind != report.Connect &&
			e.Kind != report.Phase {
			messages = append(messages, e.Kind+" "+e.Message)
		}
	}
	p := w.mustApply()
	if want := []string{"begin replacing", "begin removing", "begin draining", "note cleaned, to be created again",
		"begin creating", "done ", "done replaced: cleaned, and created again"}; !slices.Equal(messages, want) {
		t.Errorf("it says %q, want %q", messages, want)
	}
	w.engine.Report = nil
	if n, _ := p.Count(plan.Replace); n != 1 || !strings.Contains(p.Summary(), "1 to replace") {
		t.Errorf("plan: %s", p.Summary())
	}
	if _, err := h.Stat("/var/lib/kubelet/left"); err == nil {
		t.Error("it was not cleaned")
	}
	if !slices.Equal(w.clusterAPI.drained, []string{"b"}) || !slices.Equal(w.clusterAPI.missing, []string{"b"}) ||
		len(h.Files()) == 0 {
		t.Errorf("drained %v, forgot %v", w.clusterAPI.drained, w.clusterAPI.missing)
	}
	w.engine.Replaces = nil
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}
}

// A replaced control-plane machine leaves the etcd cluster and joins it again.
// Proves P07.
func TestReplacedControlPlaneMachinesRejoin(t *testing.T) {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6",
		config.RoleControlPlane)
	w := newWorld(t, controlMachine, second, third)
	w.mustApply()
	store := hostfake.NewEtcd("control", "second", "third")
	for _, h := range w.hosts {
		h.Store = store
	}
	w.engine.Replaces = []string{"machine.control"}
	w.mustApply()
	members, err := store.Members(t.Context())
	if err != nil || len(members) != 3 || members[2].Name != "control" || members[2].Learner {
		t.Errorf("members %+v, %v", members, err)
	}
}

func TestImpossibleReplacementsAreRefused(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	for address, want := range map[string]string{"machine.control": "only machine of the control " +
		"plane", "machine.nobody": "no such machine"} {
		w.engine.Replaces = []string{address}
		if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

// After a run that was interrupted when it had removed an object, the state still contains the object. The next run
// only removes it from the state.
// Proves P02.
func TestEmptyAppliesForgetObjectsThatAnInterruptedRunRemoved(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	s, err := w.engine.Store.Read()
	if err != nil {
		t.Fatal(err)
	}
	kept := state.Object{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Namespace:  "x",
		Name:       "kept",
		Address:    "object.v1.ConfigMap.kept",
	}
	ended := state.Object{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Namespace:  "x",
		Name:       "ended",
		Address:    "object.v1.ConfigMap.ended",
	}
	s.Objects = []state.Object{ended, kept}
	if err := w.engine.Store.Write(s); err != nil {
		t.Fatal(err)
	}
	w.clusterAPI.endedObjects = []state.Object{ended}
	w.mustApply()
	if s, err = w.engine.Store.Read(); err != nil || len(s.Objects) != 1 || s.Objects[0] != kept {
		t.Errorf("the state has %+v, %v", s.Objects, err)
	}
}

// -refresh removes from the state what no longer exists, but never a machine that is only unreachable.
// Proves P02.
func TestRefreshForgetsMissingObjectsAndChangesNothing(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	s, err := w.engine.Store.Read()
	if err != nil {
		t.Fatal(err)
	}
	s.Objects = []state.Object{
		{APIVersion: "v1", Kind: "ConfigMap", Namespace: "x", Name: "y", Address: "object.v1.ConfigMap.y"},
	}
	if err := w.engine.Store.Write(s); err != nil {
		t.Fatal(err)
	}
	w.hostsByIP[machineA.IP] = &hostfake.Host{Machine: w.hosts["machine.a"].Machine} // a new disk
	w.hosts["machine.a"] = w.hostsByIP[machineA.IP]
	w.unreachable["machine.b"] = errors.New("unreachable: no route to host")
	w.engine.IsRefreshOnly = true
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "machine.b") {
		t.Fatalf("error %v: a machine that does not answer is passed over", err)
	}
	w.engine.Excludes = []string{"machine.b"}
	logged := len(w.hosts["machine.control"].Log)
	w.mustApply()
	s, err = w.engine.Store.Read()
	if err != nil || len(s.Machines) != 2 || len(s.Objects) > 0 || !s.Machines["machine.b"].HasJoined {
		t.Errorf("the state has %+v and %+v, %v", s.Machines, s.Objects, err)
	}
	if len(w.hosts["machine.a"].Files()) > 0 || len(w.hosts["machine.control"].Log) != logged {
		t.Error("a machine was changed")
	}
}

// The events and the plan show that objects were replaced.
// Proves P02.
func TestReplacedObjectsAreReportedAsReplaced(t *testing.T) {
	w := newWorld(t, controlMachine)
	o := state.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "x", Name: "y", Address: "object.v1.ConfigMap.y"}
	w.clusterAPI.objects = []state.Object{o}
	w.mustApply()
	w.clusterAPI.planResult = []plan.Object{{Address: o.Address, Kind: o.Kind, Name: o.FullName()}}
	w.clusterAPI.applyEvents = []plan.Object{{Address: o.Address, Kind: o.Kind, Name: o.FullName(),
		Action: plan.Create}}
	w.engine.Replaces = []string{o.Address}
	var messages []string
	w.engine.Report = func(e report.Event) {
		if e.Kind == report.Object {
			messages = append(messages, e.Object.Name+" "+e.Object.Action)
		}
	}
	p := w.mustApply()
	if !strings.Contains(p.Summary(), "objects: 0 to create, 0 to change, 0 to remove, 1 to replace") &&
		!strings.Contains(p.Summary(), "objects: 1 to replace") {
		t.Errorf("the plan says %q", p.Summary())
	}
	if !slices.Equal(messages, []string{"x/y remove", "x/y replace"}) {
		t.Errorf("it says %q", messages)
	}
}

func TestRefusedReplacementsStateTheReason(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	w.engine.Config.Machines = append(w.engine.Config.Machines, machine("new", "10.0.0.9", config.RoleNode))
	for _, c := range []struct{ targets, excludes, replaces, want string }{
		{"machine.a", "", "machine.b", "-replace machine.b: -target leaves it out of this run"},
		{"", "machine.b", "machine.b", "-replace machine.b: -exclude leaves it out of this run"},
		{"", "", "machine.new", "-replace machine.new: it has not been applied yet"},
		{"", "", "machine.none", "-replace machine.none: there is no such machine, workload or object"},
	} {
		w.engine.Targets, w.engine.Excludes, w.engine.Replaces = nil, nil, []string{c.replaces}
		if c.targets != "" {
			w.engine.Targets = []string{c.targets}
		}
		if c.excludes != "" {
			w.engine.Excludes = []string{c.excludes}
		}
		if _, err := w.engine.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
