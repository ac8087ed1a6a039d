package run_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// A second operator's run fails before it changes anything, if another run removed a machine after the second operator
// planned. It writes no objects, and does not partly restore the machine that was cleaned.
func TestMachinesCleanedDuringARunStopItBeforeItChangesAnything(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.engine.Run, w.engine.Operator = "the first run", "root@first"
	w.mustApply()
	second := w.newOperator("root@second")
	grown := machineB
	grown.Kubelet.Choose("max_pods", 42)
	declared := *w.engine.Config
	declared.Machines = slices.Clone(declared.Machines)
	declared.Machines[2] = grown
	second.Config = &declared

	w.engine.Run = "the run that removes"
	w.declare(controlMachine, machineA)
	removing, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer removing.Close()
	theirs, err := second.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := removing.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	applied := len(w.clusterAPI.previousObjects)
	err = theirs.Apply(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another run") || strings.Contains(err.Error(), "was not sent") {
		t.Errorf("error %v, want one that names another run", err)
	}
	if len(w.clusterAPI.previousObjects) != applied {
		t.Error("the rejected run applied objects")
	}
	if _, err := w.hostsByIP[machineB.IP].Stat("/etc/kubernetes/kubelet.conf"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the rejected run wrote a kubeconfig to the cleaned machine: %v", err)
	}
}

// The same applies if the first run had already begun to clean the machine when the second operator planned.
func TestMachinesReadWhileBeingCleanedStopTheRun(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.engine.Run, w.engine.Operator = "the first run", "root@first"
	w.mustApply()
	second := w.newOperator("root@second")
	declared := *w.engine.Config
	grown := machineB
	grown.Kubelet.Choose("max_pods", 42)
	declared.Machines = append(slices.Clone(declared.Machines[:2]), grown)
	second.Config = &declared
	if err := w.hostsByIP[machineB.IP].WriteFile("/proc/sys/kernel/random/boot_id", strings.NewReader("a boot\n"),
		0o444, 0,
		0); err != nil {
		t.Fatal(err)
	}
	theirs, err := second.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	w.engine.Run = "the first run" // the last run that the second operator saw on the machine
	w.declare(controlMachine, machineA)
	w.mustApply()
	if err := theirs.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("error %v, want one that names another run", err)
	}
}

func TestFailedRenewalsContinueWithTheNextApply(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	now := time.Now()
	w.engine.Now = func() time.Time { return now }
	w.mustApply()
	serial := func(label string) string { return w.state().Machines["machine.a"].Issued[label].Serial }
	const label = "kubeconfig /etc/kubernetes/kubelet.conf"
	before := serial(label)
	read := func() string {
		text, err := w.hosts["machine.a"].ReadFile("/etc/kubernetes/kubelet.conf")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := read()
	now = now.Add(2 * time.Second)
	w.engine.Renews = []string{"all"}
	full := errors.New("no space left on device")
	w.hosts["machine.a"].BeforeChange = func(what string) error {
		if strings.HasSuffix(what, "/etc/kubernetes/kubelet.conf") {
			return full
		}
		return nil
	}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), full.Error()) {
		t.Fatalf("apply with a full disk: error %v", err)
	}
	if read() != first || len(w.state().Renewals) != 1 {
		t.Fatalf("renewals in the state: %+v, want one, and an unchanged certificate", w.state().Renewals)
	}
	w.hosts["machine.a"].BeforeChange = nil
	w.engine.Renews = nil
	if p := w.mustApply(); p.IsEmpty() {
		t.Error("the next apply is empty, want a renewal")
	}
	if read() == first || serial(label) == before {
		t.Error("the next apply did not renew the certificate")
	}
	if p := w.mustApply(); !p.IsEmpty() || len(w.state().Renewals) > 0 {
		t.Errorf("the apply after the renewal: plan %v, renewals %+v, want none", machineActions(p), w.state().Renewals)
	}
}

func TestApplyReportsWhatAReplacementChanged(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	s := w.state()
	next, err := certs.NewCA("kubernetes", 0, time.Now())
	if err == nil {
		err = s.Rotate(certs.ClusterCA, next, state.UntilFinished, time.Now())
	}
	if err == nil {
		err = w.engine.Store.Write(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.mustApply()
	s = w.state()
	r := s.Rotations[certs.ClusterCA]
	r.IsFinishRequested = true
	s.Rotations[certs.ClusterCA] = r
	if err := w.engine.Store.Write(s); err != nil {
		t.Fatal(err)
	}
	p := w.mustApply()
	if len(p.Moves) != 1 || !strings.Contains(p.Moves[0], "not trusted any more") || len(p.Moved) != 2 {
		t.Errorf("moves %q, changed machines %q", p.Moves, p.Moved)
	}
}

// sentAgent is an agent whose program was sent to the machine.
type sentAgent struct{ session.Agent }

func (sentAgent) SentBytes() int64 { return 103_000_000 }

// A plan reports the program that it left on machines.
func TestPlansNameTheMachinesThatGotTheProgram(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	dial := w.engine.Dial
	w.engine.IsPlanOnly = true
	fingerprint := func() string {
		prepared, err := w.engine.Prepare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer prepared.Close()
		var text strings.Builder
		if err := prepared.Plan.Print(&text, plan.Style{}); err != nil {
			t.Fatal(err)
		}
		brought := strings.HasPrefix(text.String(),
			"clusterctl was sent to 1 machine in order to plan: machine.a. Apply uses it there. It has 103 MB")
		if want := prepared.Plan.ProgramSentTo != ""; brought != want {
			t.Errorf("Brought is %q, but the printed plan is:\n%s", prepared.Plan.ProgramSentTo, &text)
		}
		return prepared.Plan.Fingerprint()
	}
	before := fingerprint()
	w.engine.Dial = func(ctx context.Context, m config.Machine) (session.Agent, error) {
		a, err := dial(ctx, m)
		if err == nil && m.Name == "a" {
			a = sentAgent{a}
		}
		return a, err
	}
	prepared, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	prepared.Close()
	if prepared.Plan.ProgramSentTo == "" {
		t.Error("Brought is empty, although the program was sent")
	}
	if fingerprint() != before {
		t.Error("the fingerprint depends on whether the program was sent")
	}
}
