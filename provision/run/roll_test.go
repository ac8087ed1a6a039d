package run_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/run/report"
)

// editFile changes a file on a machine by hand. The next run restores it.
func (w *world) editFile(address, path string) {
	w.t.Helper()
	h := w.hosts[address]
	text, err := h.ReadFile(path)
	if err == nil {
		err = h.WriteFile(path, strings.NewReader(string(text)+"# edited\n"), 0o644, 0, 0)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

const (
	runtimeFile = "/etc/containerd/config.toml"
	kubeletFile = "/var/lib/kubelet/config.yaml"
	etcdFile    = "/etc/systemd/system/etcd.service"
)

// A node whose container runtime restarts is drained before and accepts pods again afterwards. A node whose kubelet
// restarts keeps its pods.
// Proves P02.
func TestNodesAreDrainedOnlyForTheirRuntime(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	w.clusterAPI.nodeStatus = map[string]string{"a": "True", "b": "True"}
	w.editFile("machine.a", runtimeFile)
	w.editFile("machine.b", kubeletFile)
	p := w.mustApply()
	if note := p.Machines[1].Note; !strings.Contains(note, "drain, since the container runtime restarts") {
		t.Errorf("the plan says %q", note)
	}
	if note := p.Machines[2].Note; note != "restart kubelet" {
		t.Errorf("the plan says %q", note)
	}
	if !slices.Equal(w.clusterAPI.drained, []string{"a"}) || len(w.clusterAPI.cordoned) > 0 {
		t.Errorf("drained %v, and %v take no pods", w.clusterAPI.drained, w.clusterAPI.cordoned)
	}
}

// If a run ends while a node is drained, the next run continues, and the node accepts pods again.
// Proves P02.
func TestNodesDrainedByAnInterruptedRunAreUncordoned(t *testing.T) {
	for name, heal := range map[string]func(w *world){
		"continued": func(w *world) { w.editFile("machine.a", runtimeFile) },
		"given up":  func(*world) {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, controlMachine, machineA, machineB)
			w.mustApply()
			w.clusterAPI.nodeStatus = map[string]string{"a": "True", "b": "True"}
			original, err := w.hosts["machine.a"].ReadFile(runtimeFile)
			if err != nil {
				t.Fatal(err)
			}
			w.editFile("machine.a", runtimeFile)
			w.clusterAPI.drainError = errors.New("2 pods still on a: a budget says: not now")
			if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "machine.a") ||
				!strings.Contains(err.Error(), "a budget says") {
				t.Fatalf("error %v", err)
			}
			if err := w.hosts["machine.a"].WriteFile(runtimeFile, strings.NewReader(string(original)), 0o644, 0,
				0); err != nil {
				t.Fatal(err)
			}
			heal(w)
			w.clusterAPI.drainError = nil
			if p := w.mustApply(); p.IsEmpty() {
				t.Error("the plan does not say that the node takes pods again")
			}
			if len(w.clusterAPI.cordoned) > 0 {
				t.Errorf("%v take no pods", w.clusterAPI.cordoned)
			}
			if again := w.mustApply(); !again.IsEmpty() {
				t.Errorf("not empty afterwards: %+v", again.Machines)
			}
		})
	}
}

func TestNodesCordonedByUsersStayCordoned(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	w.clusterAPI.nodeStatus, w.clusterAPI.cordoned = map[string]string{"a": "True", "b": "True"},
		map[string]bool{"a": true}
	w.editFile("machine.a", runtimeFile)
	w.mustApply()
	if !w.clusterAPI.cordoned["a"] {
		t.Error("it takes pods again")
	}
}

// Nodes change within the budget, and the run stops at the first failure.
// Proves P02.
func TestNodesAreChangedWithinTheBudget(t *testing.T) {
	list := []config.Machine{controlMachine}
	for i := range 8 {
		list = append(list, machine(fmt.Sprintf("n%d", i), fmt.Sprintf("10.0.1.%d", i+1), config.RoleNode))
	}
	w := newWorld(t, list...)
	w.mustApply()
	w.engine.Config.Roll.MaxUnavailable = "25%"
	var mu sync.Mutex
	at, maximum := map[string]bool{}, 0
	w.engine.Report = func(e report.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e.Kind {
		case report.Begin:
			at[e.Machine] = true
		case report.Done:
			delete(at, e.Machine)
		}
		maximum = max(maximum, len(at))
	}
	for _, m := range list[1:] {
		w.editFile(m.Address, kubeletFile)
	}
	w.mustApply()
	if maximum > 2 {
		t.Errorf("%d nodes were changed at a time, the budget is 2", maximum)
	}
	w.engine.Config.Roll.MaxUnavailable = "1"
	for _, m := range list[1:] {
		w.editFile(m.Address, kubeletFile)
		w.hosts[m.Address].StartErrors = map[string]error{"kubelet.service": errors.New("exit 1")}
		w.hosts[m.Address].Log = nil
	}
	if _, err := w.apply(); err == nil {
		t.Fatal("no error")
	}
	touched := 0
	for _, m := range list[1:] {
		if len(w.hosts[m.Address].Log) > 0 {
			touched++
		}
	}
	if touched != 1 {
		t.Errorf("%d nodes were touched although the first failed", touched)
	}
}

// The control-plane machines change one by one, and not at all if that would cost the majority.
// Proves S12.
func TestTheControlPlaneIsNotChangedIfItWouldLoseItsMajority(t *testing.T) {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6",
		config.RoleControlPlane)
	w := newWorld(t, controlMachine, second, third)
	w.mustApply()
	store := hostfake.NewEtcd("control", "second", "third")
	sick := map[string]error{
		"https://10.0.0.6:2379":        errors.New("no answer"),
		"https://10.0.0.6:6443/readyz": errors.New("no answer"),
	}
	for _, h := range w.hosts {
		h.Store, h.AnswerErrors = store, sick
	}
	w.editFile("machine.control", etcdFile)
	logged := len(w.hosts["machine.control"].Log)
	w.unreachable["machine.third"] = errors.New("no route to host")
	w.engine.Excludes = []string{"machine.third"}
	_, err := w.apply()
	if err == nil || !strings.Contains(err.Error(), "machine.control") ||
		!strings.Contains(err.Error(), "1 of 3 members would be left") ||
		!strings.Contains(err.Error(), "third: no answer") {
		t.Fatalf("error %v does not say why", err)
	}
	if len(w.hosts["machine.control"].Log) != logged {
		t.Error("it was changed")
	}
	// A machine that answers may have just returned, so the run waits for it. Then the machines change one after the
	// other.
	var order []string
	waited := ""
	w.engine.Report = func(e report.Event) {
		switch e.Kind {
		case report.Begin:
			order = append(order, e.Machine)
		case report.Note:
			waited += e.Message
			clear(sick)
		}
	}
	delete(w.unreachable, "machine.third")
	w.engine.Excludes = nil
	w.editFile("machine.third", etcdFile)
	w.mustApply()
	if !slices.Equal(order, []string{"machine.control", "machine.third"}) {
		t.Errorf("order %v", order)
	}
	if !strings.HasPrefix(waited, "waiting for third, which may be just back") {
		t.Errorf("notes %q", waited)
	}
}

// A failed node that is removed is deleted before its neighbours are drained. A running node that is removed accepts no
// pods meanwhile.
// Proves P02.
func TestPodsAreNotDrainedOntoNodesThatAreRemoved(t *testing.T) {
	nodeC := machine("c", "10.0.0.4", config.RoleNode)
	w := newWorld(t, controlMachine, machineA, machineB, nodeC)
	w.mustApply()
	w.clusterAPI.nodeStatus = map[string]string{"a": "True", "b": "Unknown", "c": "True"}
	w.unreachable["machine.b"] = errors.New("no route to host")
	w.editFile("machine.a", runtimeFile)
	w.declare(controlMachine, machineA)
	w.mustApply()
	if want := []string{"forget b", "cordon c", "drain a", "drain c",
		"forget c"}; !slices.Equal(w.clusterAPI.operations, want) {
		t.Errorf("did %v, want %v", w.clusterAPI.operations, want)
	}
}

// A node whose kubelet does not report is repaired without draining it first, because no kubelet would end its pods.
// Proves P02.
func TestSilentNodesAreRepairedWithoutDraining(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	w.clusterAPI.nodeStatus = map[string]string{"a": "Unknown", "b": "True"}
	w.editFile("machine.a", runtimeFile)
	w.mustApply()
	if len(w.clusterAPI.drained) > 0 {
		t.Errorf("drained %v", w.clusterAPI.drained)
	}
}

// A deleted program is restored, without a drain or a restart.
// Proves P02.
func TestLostProgramsAreRestoredWithoutARestart(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	w.clusterAPI.nodeStatus = map[string]string{"a": "True", "b": "True"}
	h := w.hosts["machine.a"]
	if err := h.RemoveAll("/usr/local/bin/runc"); err != nil {
		t.Fatal(err)
	}
	h.Log = nil
	p := w.mustApply()
	if changes := p.Machines[1].Changes; len(changes) != 1 || changes[0].Name != "runc" ||
		p.Machines[1].Note != "no restart" {
		t.Errorf("the plan says %q: %+v", p.Machines[1].Note, changes)
	}
	if !slices.Equal(h.Log, []string{"link /usr/local/bin/runc"}) || len(w.clusterAPI.drained) > 0 {
		t.Errorf("did %v, drained %v", h.Log, w.clusterAPI.drained)
	}
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}
}
