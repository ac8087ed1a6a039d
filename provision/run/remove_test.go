package run_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
	"clusterctl/tests/tools/amount"
)

// A machine is cleaned, whatever mounts its kubelet left when it was stopped in the middle of its work.
// Proves P07.
func TestRemovedNodesAreCleanedDespiteMounts(t *testing.T) {
	mounts := []string{
		"/var/lib/kubelet/pods/a/volumes/kubernetes.io~projected/kube-api-access-x",
		"/var/lib/kubelet/pods/a/volumes/x",
		"/var/lib/kubelet/plugins/x/mount", "/run/containerd/io.containerd.runtime.v2.task/k8s.io/x/rootfs",
		"/var/lib/containerd/tmp/x",
	}
	for set := 0; set < 1<<len(mounts); set += amount.Scaled(1, 6) {
		w := newWorld(t, controlMachine, machineA, machineB)
		w.mustApply()
		h := w.hosts["machine.b"]
		for i, p := range mounts {
			if set&(1<<i) != 0 {
				h.Mount(p)
			}
		}
		w.declare(controlMachine, machineA)
		w.mustApply()
		for _, path := range h.Files() {
			if !strings.HasPrefix(path, "/proc/") {
				t.Errorf("mounts %05b: %s is left behind", set, path)
			}
		}
		if left, _ := h.Mounts("/"); len(left) > 0 {
			t.Errorf("mounts %05b: %v are still mounted", set, left)
		}
	}
}

// After an interrupted cleanup no kubelet ends pods, so the next run does not wait for that.
// Proves P07.
func TestCleaningContinuesWithoutDrainingAfterTheKubeletIsGone(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	h := w.hosts["machine.b"]
	kubelet := &step.RemoveUnit{Name: "kubelet.service", Path: step.UnitDir + "kubelet.service"}
	if err := step.Apply(t.Context(), h, []step.Step{kubelet}, func(int, step.Change) {}); err != nil {
		t.Fatal(err)
	}
	w.declare(controlMachine, machineA)
	w.mustApply()
	if len(w.clusterAPI.drained) > 0 || len(w.clusterAPI.missing) != 1 {
		t.Errorf("drained %v, forgot %v", w.clusterAPI.drained, w.clusterAPI.missing)
	}
}

// Objects that the API refuses are reported by plan, which fails, and by apply. apply continues with machines and other
// objects, and removes what is to be removed.
// Proves P05.
func TestRefusedObjectsAreReportedAndTheRestIsApplied(t *testing.T) {
	w := newWorld(t, controlMachine, machineB)
	w.mustApply()
	refused := session.RefusedError{List: []session.Refusal{
		{
			Address: "object.v1.ConfigMap.a",
			Source:  config.Source{File: "app.hcl", Line: 3},
			Kind:    "ConfigMap",
			Name:    "default/a",
			Err:     errors.New("too big"),
		},
		{
			Address: "object.v1.Widget.b",
			Source:  config.Source{File: "app.hcl", Line: 9},
			Kind:    "Widget",
			Name:    "default/b",
			Err:     errors.New("there is no such kind in v1"),
		},
	}}
	w.clusterAPI.planError, w.clusterAPI.applyErrors = refused, []error{
		refused,
		nil,
		refused,
	} // the middle call labels the joining node
	w.declare(controlMachine, machineA)
	w.engine.IsPlanOnly = true
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.engine.IsPlanOnly = false
	expectMessage := func(err error) {
		t.Helper()
		for _, want := range []string{"refuses 2 objects", "app.hcl:3", "too big", "app.hcl:9", "no such kind"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v does not say %q", err, want)
			}
		}
	}
	expectMessage(p.Unreached())
	p.Close()
	_, err = w.apply()
	expectMessage(err)
	s, err := w.engine.Store.Read()
	if err != nil || !s.Machines["machine.a"].HasJoined || len(s.Machines) != 2 {
		t.Errorf("the machines are %v, %v", slices.Collect(maps.Keys(s.Machines)), err)
	}
}

// An object that is refused while machines change, and accepted afterwards, does not fail the run: its webhook ran on a
// node that this run created.
// Proves P05.
func TestObjectsAcceptedAfterTheMachinesJoinAreNotRefused(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	refused := session.RefusedError{
		List: []session.Refusal{
			{
				Address: "object.v1.ConfigMap.a",
				Kind:    "ConfigMap",
				Name:    "default/a",
				Err:     errors.New("failed calling webhook"),
			},
		},
		Waiting: 2,
	}
	w.clusterAPI.objects = []state.Object{{APIVersion: "v1", Kind: "ConfigMap", Name: "a",
		Address: "object.v1.ConfigMap.a"}}
	w.clusterAPI.applyErrors = []error{refused}
	object := plan.Object{Address: "object.v1.ConfigMap.a", Kind: "ConfigMap", Name: "default/a"}
	w.clusterAPI.extraEvents = [][]plan.Object{{withAction(object, plan.Refused)}, nil,
		{withAction(object, plan.Create)}}
	done, err := w.apply()
	if err != nil {
		t.Errorf("the run fails although all is there: %v", err)
	}
	if _, created := done.Count(plan.Create); created != 1 || len(done.Objects) != 1 {
		t.Errorf("done was %+v", done.Objects)
	}
	if len(w.clusterAPI.previousObjects) != 3 { // refused, the labels of the joined nodes, and accepted
		t.Errorf("objects were applied %d times", len(w.clusterAPI.previousObjects))
	}
	w.clusterAPI.previousObjects, w.clusterAPI.applyErrors = nil, []error{refused}
	w.clusterAPI.planResult = []plan.Object{
		{Address: "object.v1.ConfigMap.a", Kind: "ConfigMap", Name: "default/a", Action: plan.Change},
	}
	if _, err := w.apply(); err == nil || len(w.clusterAPI.previousObjects) != 1 {
		t.Errorf("nothing has changed since the refusal, and it was tried %d times: "+
			"%v", len(w.clusterAPI.previousObjects), err)
	}
}

func withAction(o plan.Object, action string) plan.Object {
	o.Action = action
	return o
}

// stoppingAgent is an agent that stops the run during its work.
type stoppingAgent struct {
	session.Agent
	stop func()
}

func (s stoppingAgent) Apply(ctx context.Context, _ []step.Step, _ func(agent.Progress)) error {
	s.stop()
	<-ctx.Done()
	return ctx.Err()
}

func TestInterruptedRunsReportItOnce(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.engine.Dial = func(ctx context.Context, m config.Machine) (session.Agent, error) {
		a, err := w.dial(ctx, m)
		return stoppingAgent{a, cancel}, err
	}
	w.engine.Report = func(e report.Event) {
		if e.Kind == report.Failed {
			t.Errorf("%s is said to have failed: %s", e.Machine, e.Message)
		}
	}
	p, err := w.engine.Prepare(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Apply(ctx); !errors.Is(err, session.ErrInterrupted) || err.Error() != session.ErrInterrupted.Error() {
		t.Errorf("got %v", err)
	}
}

func TestKindsOfTheNextReleaseAreAcceptedDuringTheUpdate(t *testing.T) {
	w := newWorld(t, controlMachine)
	w.mustApply()
	w.clusterAPI.planError = session.RefusedError{
		List: []session.Refusal{
			{
				Address:       "object.v2.Widget.b",
				Kind:          "Widget",
				IsUnknownKind: true,
				Err:           errors.New("there is no such kind in v2"),
			},
		},
	}
	now, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	if now.Unreached() == nil {
		t.Error("an unknown kind is taken although the API server stays")
	}
	if err := w.hosts["machine.control"].Symlink("/usr/local/lib/clusterctl/former/clusterctl",
		"/usr/local/bin/kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !p.Plan.IsPending || len(p.Plan.Warnings) == 0 {
		t.Errorf("plan %+v does not say that objects are compared later", p.Plan)
	}
}
