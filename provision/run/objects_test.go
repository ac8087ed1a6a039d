package run_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// A plan whose objects could not be compared reports this and fails. It does not report that there is nothing to
// change.
// Proves P05.
func TestPlansWithoutComparedObjectsAreIncomplete(t *testing.T) {
	w := newWorld(t, controlMachine)
	w.clusterAPI.objects = []state.Object{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "a", Address: "object.v1.ConfigMap.a"},
		{APIVersion: "v1", Kind: "ConfigMap", Name: "b", Address: "object.v1.ConfigMap.b"},
	}
	if p := w.mustApply(); !strings.Contains(p.Summary(),
		"1 to create, 0 to change, 0 to remove; objects: 2 to create") {
		t.Errorf("a new cluster's plan says %q", p.Summary())
	}
	w.clusterAPI.planError = errors.New("Internal error occurred: failed calling webhook")
	w.engine.IsPlanOnly = true
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Unreached(); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("the plan is whole: %v", err)
	}
	if text := p.Plan.Summary(); !strings.Contains(text, "objects not compared") {
		t.Errorf("it says %q", text)
	}
}

// A machine that hangs does not keep objects from being applied, in a new cluster or an existing one.
// Proves P02.
func TestObjectsAreAppliedWhileAMachineHangs(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	hang := func() {
		applied := make(chan struct{})
		w.clusterAPI.applied = applied
		w.hosts["machine.a"].OnStart = func(unit string) {
			if unit == "kubelet.service" {
				select {
				case <-applied:
				case <-time.After(time.Minute):
					t.Error("nothing was applied while the machine hung")
				}
			}
		}
	}
	hang()
	w.mustApply()
	hang()
	w.editFile("machine.a", kubeletFile)
	w.mustApply()
}

// A machine that fails does not either, whatever its role. The run ends with the error of that machine.
// Proves P02.
func TestObjectsAreAppliedAlthoughAMachineFails(t *testing.T) {
	second := machine("second", "10.0.0.5", config.RoleControlPlane)
	w := newWorld(t, controlMachine, second, machineA)
	w.hosts["machine.a"].StartErrors = map[string]error{"kubelet.service": errors.New("exit 1")}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "machine.a (cluster.hcl:7)") {
		t.Fatalf("error %v", err)
	}
	if len(w.clusterAPI.previousObjects) == 0 {
		t.Error("a node of a new cluster failed, and nothing was applied")
	}
	w.hosts["machine.a"].StartErrors = nil
	w.mustApply()
	w.hosts["machine.second"].StartErrors = map[string]error{"kube-apiserver.service": errors.New("exit 1")}
	w.editFile("machine.second", "/etc/systemd/system/kube-apiserver.service")
	w.clusterAPI.previousObjects = nil
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "machine.second (cluster.hcl:7)") {
		t.Fatalf("error %v", err)
	}
	if len(w.clusterAPI.previousObjects) == 0 {
		t.Error("a machine of the control plane failed, and nothing was applied")
	}
}

// A node is labelled after its kubelet has registered it. An object that was created earlier would look like a node
// without taints. A node that is left out and has never joined is not labelled.
// Proves P05.
func TestNodesAreLabelledAfterTheyJoin(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.engine.Excludes = []string{"machine.b"}
	w.hosts["machine.a"].OnStart = func(unit string) {
		if slices.Contains(w.clusterAPI.machines(), "a") {
			t.Errorf("the node was labelled before its %s started", unit)
		}
	}
	w.mustApply()
	if got := w.clusterAPI.machines(); !slices.Contains(got, "a") || slices.Contains(got, "b") {
		t.Errorf("labelled are %v", got)
	}
}

// After pools were applied, their absence must be applied too, so the objects of a run know that there were pools.
// Proves S22.
func TestRunsRecordFormerPools(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.clusterAPI.objects = []state.Object{
		{
			APIVersion: "v1",
			Kind:       "ConfigMap",
			Namespace:  "kube-system",
			Name:       "load-balancer-pools",
			Address:    "cluster.home",
		},
	}
	w.mustApply()
	if w.engine.Config.HadPools {
		t.Error("there are said to have been pools before the first")
	}
	w.mustApply()
	if !w.engine.Config.HadPools {
		t.Error("it is not known that there were pools")
	}
}
