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

// P05: a plan whose objects could not be compared says so and fails, rather than that there is nothing to change.
func TestAPlanThatCouldNotCompareObjectsIsNotWhole(t *testing.T) {
	w := newWorld(t, control)
	w.live.objects = []state.Object{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "a", Address: "object.v1.ConfigMap.a"},
		{APIVersion: "v1", Kind: "ConfigMap", Name: "b", Address: "object.v1.ConfigMap.b"},
	}
	if p := w.mustApply(); !strings.Contains(
		p.Summary(),
		"1 to create, 0 to change, 0 to remove; objects: 2 to create",
	) {
		t.Errorf("a new cluster's plan says %q", p.Summary())
	}
	w.live.refused = errors.New("Internal error occurred: failed calling webhook")
	w.engine.Look = true
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

// P02: a machine that hangs keeps no object from being applied, be the cluster new or not.
func TestObjectsAreAppliedWhileAMachineHangs(t *testing.T) {
	w := newWorld(t, control, nodeA)
	hang := func() {
		applied := make(chan struct{})
		w.live.applied = applied
		w.hosts["machine.a"].Starts = func(unit string) {
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
	w.edit("machine.a", kubeletFile)
	w.mustApply()
}

// P02: nor does one that fails, wherever it is; the run ends with what that machine says.
func TestObjectsAreAppliedAlthoughAMachineFails(t *testing.T) {
	second := machine("second", "10.0.0.5", config.RoleControlPlane)
	w := newWorld(t, control, second, nodeA)
	w.hosts["machine.a"].Fail = map[string]error{"kubelet.service": errors.New("exit 1")}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "machine.a (cluster.hcl:7)") {
		t.Fatalf("error %v", err)
	}
	if len(w.live.before) == 0 {
		t.Error("a node of a new cluster failed, and nothing was applied")
	}
	w.hosts["machine.a"].Fail = nil
	w.mustApply()
	w.hosts["machine.second"].Fail = map[string]error{"kube-apiserver.service": errors.New("exit 1")}
	w.edit("machine.second", "/etc/systemd/system/kube-apiserver.service")
	w.live.before = nil
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "machine.second (cluster.hcl:7)") {
		t.Fatalf("error %v", err)
	}
	if len(w.live.before) == 0 {
		t.Error("a machine of the control plane failed, and nothing was applied")
	}
}

// P05: a node is labelled when its kubelet has registered: an object made before that would be taken for a node without
// taints. One that is left out and has never joined gets none.
func TestNodesAreLabelledWhenTheyAreThere(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	w.engine.Excludes = []string{"machine.b"}
	w.hosts["machine.a"].Starts = func(unit string) {
		if slices.Contains(w.live.machines(), "a") {
			t.Errorf("the node was labelled before its %s started", unit)
		}
	}
	w.mustApply()
	if got := w.live.machines(); !slices.Contains(got, "a") || slices.Contains(got, "b") {
		t.Errorf("labelled are %v", got)
	}
}

// Once pools were applied, there being none has to be said: the objects that a run applies know that there were some.
func TestARunKnowsThatThereWerePoolsS22(t *testing.T) {
	w := newWorld(t, control, nodeA)
	w.live.objects = []state.Object{
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
