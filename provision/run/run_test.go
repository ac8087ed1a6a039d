package run_test

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
)

// A second apply changes nothing, and reports this.
// Proves P02.
func TestRepeatedAppliesChangeNothing(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	if n, _ := w.mustApply().Count(plan.Create); n != 2 {
		t.Fatalf("%d machines created, want 2", n)
	}
	for _, h := range w.hosts {
		h.Log = nil
	}
	second := w.mustApply()
	if !second.IsEmpty() || !strings.Contains(second.Summary(), "No changes") {
		t.Errorf("second plan is not empty: %+v", second.Machines)
	}
	for name, h := range w.hosts {
		if len(h.Log) > 0 {
			t.Errorf("%s was changed: %v", name, h.Log)
		}
	}
}

// A file edited by hand is shown with its difference, and restored.
// Proves P02.
func TestEditedUnitFilesAreReportedAndRestored(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	h, path := w.hosts["machine.a"], "/etc/systemd/system/kubelet.service"
	original, err := h.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.WriteFile(path, strings.NewReader(strings.Replace(string(original), "RestartSec=1", "RestartSec=9", 1)),
		0o644, 0, 0); err != nil {
		t.Fatal(err)
	}
	h.Log = nil
	p := w.mustApply()
	changes := p.Machines[1].Changes
	if len(changes) != 2 || !slices.Equal(changes[0].Diff, []string{"- RestartSec=9", "+ RestartSec=1"}) ||
		changes[1].Name != "kubelet.service" {
		t.Errorf("unexpected changes %+v", changes)
	}
	if got, _ := h.ReadFile(path); string(got) != string(original) {
		t.Error("the file was not put back")
	}
	if want := []string{"write " + path, "daemon-reload", "restart kubelet.service",
		"write /var/lib/clusterctl/units/kubelet.service"}; !slices.Equal(h.Log, want) {
		t.Errorf("did %v, want %v", h.Log, want)
	}
}

func TestNothingIsChangedWhenOneMachineIsUnreachable(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.unreachable["machine.b"] = errors.New("unreachable: connection refused")
	_, err := w.apply()
	if err == nil || !strings.Contains(err.Error(), "machine.b (cluster.hcl:7): unreachable") {
		t.Fatalf("error %v does not name the machine and its line", err)
	}
	for name, h := range w.hosts {
		if len(h.Log) > 0 {
			t.Errorf("%s was changed: %v", name, h.Log)
		}
	}
}

// A plan reports an unreachable machine neither as unchanged nor as removed.
// Proves P02.
func TestPlansMarkUnreachableMachines(t *testing.T) {
	for name, declared := range map[string][]config.Machine{"clean": {controlMachine, machineA, machineB},
		"changed": {controlMachine, machineB,
			func() config.Machine { m := machineA; m.Kubelet.Choose("max_pods", 9); return m }()}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, controlMachine, machineA, machineB)
			w.mustApply()
			w.unreachable["machine.a"] = errors.New("unreachable: no route to host")
			w.declare(declared...)
			w.engine.IsPlanOnly = true
			p, err := w.engine.Prepare(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if p.Plan.IsEmpty() || !slices.Equal(p.Plan.Unreached(), []string{"machine.a"}) ||
				!strings.Contains(p.Plan.Summary(), "1 machine not reached") {
				t.Errorf("plan: %+v", p.Plan)
			}
			if err := p.Unreached(); err == nil ||
				!strings.Contains(err.Error(), "machine.a (cluster.hcl:7): unreachable") ||
				!strings.Contains(err.Error(), "-exclude") {
				t.Errorf("error %v", err)
			}
			w.engine.IsPlanOnly = false
			if _, err := w.apply(); err == nil {
				t.Error("apply goes on")
			}
			w.engine.Excludes = []string{"machine.a"}
			w.mustApply()
			w.engine.Excludes = nil
			delete(w.unreachable, "machine.a")
		})
	}
}

func TestPreflightRefusesForeignEtcdDataAndAForeignAddress(t *testing.T) {
	w := newWorld(t, controlMachine)
	foreign := host.AppendEtcdData(nil, host.EtcdData{Cluster: 0xbad, Member: 1})
	if err := w.hosts["machine.control"].WriteFile("/var/lib/etcd/member/wal/0.wal", bytes.NewReader(foreign), 0o600, 0,
		0); err != nil {
		t.Fatal(err)
	}
	w.hosts["machine.control"].Machine.Addresses = []string{"192.0.2.9"}
	_, err := w.apply()
	if err == nil || !strings.Contains(err.Error(), "another cluster") || !strings.Contains(err.Error(), "192.0.2.9") {
		t.Errorf("error %v names not both findings", err)
	}
}

// A change of what cannot change in a running cluster is refused with its position, before any other change. The
// cluster can still be destroyed.
// Proves P05.
func TestNetworksAndTheDomainDoNotChange(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	logged := w.logLengths()
	w.engine.Config.Source = config.Source{File: "cluster.hcl", Line: 3}
	w.engine.Config.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	w.engine.Config.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}
	w.engine.Config.Domain = "example.org"
	_, err := w.apply()
	for _, want := range []string{"cluster.hcl:3: pod_cidrs was 10.244.0.0/16", "service_cidrs was " +
		"10.96.0.0/16", "domain was cluster.local"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	w.checkUnchanged(logged)
	w.engine.IsDestroy = true
	w.mustApply()
}

// A machine that is no longer declared is drained, cleaned and removed from the state.
// Proves P07.
func TestARemovedNodeIsDrainedAndCleaned(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	w.declare(controlMachine, machineA)
	p := w.mustApply()
	if n, _ := p.Count(plan.Remove); n != 1 {
		t.Fatalf("%d machines removed, want 1", n)
	}
	if !slices.Equal(w.clusterAPI.drained, []string{"b"}) || !slices.Equal(w.clusterAPI.missing, []string{"b"}) {
		t.Errorf("drained %v and forgot %v, want b", w.clusterAPI.drained, w.clusterAPI.missing)
	}
	for _, path := range w.hosts["machine.b"].Files() {
		if !strings.HasPrefix(path, "/proc/") {
			t.Errorf("%s is left behind", path)
		}
	}
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}
}

// A failed machine can be removed from the cluster without reaching it, including its etcd member.
// Proves P07.
func TestDeadControlPlaneMachinesAreRemoved(t *testing.T) {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6",
		config.RoleControlPlane)
	w := newWorld(t, controlMachine, second, third)
	store := hostfake.NewEtcd("control", "second", "third")
	for _, h := range w.hosts {
		h.Store = store
	}
	w.mustApply()
	w.unreachable["machine.control"] = errors.New("no route to host")
	w.declare(second, third)
	w.mustApply()
	members, err := store.Members(t.Context())
	if err != nil || len(members) != 2 {
		t.Errorf("members %v, %v: want those of the machines that stay", members, err)
	}
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}
}

func TestFailedUnitsAreNamedAndTheNextRunContinues(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.hosts["machine.a"].StartErrors = map[string]error{"kubelet.service": errors.New("exit 1")}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "kubelet.service") ||
		!strings.Contains(err.Error(), "machine.a") {
		t.Fatalf("error %v does not name unit and machine", err)
	}
	w.hosts["machine.a"].StartErrors = nil
	w.mustApply()
	if again := w.mustApply(); !again.IsEmpty() {
		t.Error("not empty after the run that went on")
	}
}

func TestSavedPlansAreRefusedAfterTheClusterChanged(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	saved := plan.Saved{
		Format:      plan.SavedFormat,
		Serial:      p.State.Serial,
		Fingerprint: p.Plan.Fingerprint(),
		Plan:        p.Plan,
	}
	if err := saved.Check(p.State.Serial, p.Plan); err != nil {
		t.Errorf("refused at once: %v", err)
	}
	if err := w.hosts["machine.a"].WriteFile("/etc/kubernetes/pki/ca.crt", strings.NewReader("other"), 0o644, 0,
		0); err != nil {
		t.Fatal(err)
	}
	now, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	if err := saved.Check(now.State.Serial, now.Plan); err == nil {
		t.Error("a plan was taken although a machine has changed")
	}
}

// Keys never appear in plain text in the state, a plan or an event.
// Proves P04.
func TestKeysAreNeverStoredInPlainText(t *testing.T) {
	w := newWorld(t, controlMachine)
	p := w.mustApply()
	var out strings.Builder
	if err := p.Print(&out, plan.Style{Verbose: true}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(w.engine.Store.Dir, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{out.String(), string(text)} {
		if strings.Contains(s, "PRIVATE KEY") {
			t.Error("a private key is shown")
		}
	}
	if info, err := w.hosts["machine.control"].Stat("/etc/kubernetes/pki/ca.key"); err != nil ||
		info.Mode.Perm() != 0o600 {
		t.Errorf("ca.key: %v, %v", info, err)
	}
}

// A value that was sensitive when it was applied is not shown when it is removed.
// Proves P04.
func TestFormerSecretsAreNotShown(t *testing.T) {
	w := newWorld(t, controlMachine)
	w.engine.Config.Secrets = []string{"old-secret"}
	w.mustApply()
	w.declare(controlMachine)
	w.engine.Config.Secrets = []string{"new-secret"}
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !slices.Equal(p.Secrets, []string{"new-secret", "old-secret"}) {
		t.Errorf("hidden are %v", p.Secrets)
	}
	text, err := os.ReadFile(filepath.Join(w.engine.Store.Dir, "state.json"))
	if err != nil || strings.Contains(string(text), "old-secret") {
		t.Errorf("the state shows it (%v)", err)
	}
	if err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := w.engine.Store.Read()
	if err != nil || !slices.Equal(s.Keys.Secrets, []string{"new-secret"}) {
		t.Errorf("kept are %v, %v", s.Keys.Secrets, err)
	}
}

func TestDestroyLeavesNothing(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	w.engine.IsDestroy = true
	w.mustApply()
	for name, h := range w.hosts {
		for _, path := range h.Files() {
			if !strings.HasPrefix(path, "/proc/") {
				t.Errorf("%s on %s is left behind", path, name)
			}
		}
	}
	if s, err := w.engine.Store.Read(); err != nil || s != nil {
		t.Errorf("state %v, %v is left", s, err)
	}
}

// A misspelt address in -target or -exclude is an error.
// Proves P05.
func TestSelectionsThatMatchNothingAreRefused(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	for _, bad := range []string{"machine.c", "machine.node[a]", "workload.wbe"} {
		w.engine.Targets, w.engine.Excludes = nil, []string{bad}
		if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "-exclude "+bad+": there is no such") {
			t.Errorf("-exclude %s: %v", bad, err)
		}
		w.engine.Targets, w.engine.Excludes = []string{bad}, nil
		if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "-target "+bad+": there is no such") {
			t.Errorf("-target %s: %v", bad, err)
		}
	}
	w.engine.Targets, w.engine.Excludes = []string{"machine.a"}, nil
	if p := w.mustApply(); !strings.Contains(p.Summary(), "No changes in what is selected") {
		t.Errorf("a plan of a part says %q", p.Summary())
	}
}

// Drop-ins of a unit from systemctl edit or set-property are shown with their content and removed. So is a unit file
// that overrides the unit's own file.
// Proves P02.
func TestDropInsOfUnitsAreShownAndRemoved(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	h := w.hosts["machine.a"]
	for _, path := range []string{
		"/etc/systemd/system/kubelet.service.d/override.conf", "/run/systemd/system/kubelet.service.d/10-x.conf",
		"/etc/systemd/system.control/kubelet.service.d/50-MemoryMax.conf",
		"/run/systemd/system.control/kubelet.service",
	} {
		if err := h.WriteFile(path,
			strings.NewReader("[Service]\nMemoryMax=10M\nEnvironment=\"HTTPS_PROXY=http://jo:hunter2@proxy\" "+
				"B=hunter2\nEnvironment=hunter2\n"), 0o644, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	files := len(h.Files())
	h.Log = nil
	p := w.mustApply()
	changes := p.Machines[1].Changes
	if len(changes) != 2 || changes[0].Kind != "drop-in" || !strings.Contains(changes[0].Name, "override.conf") ||
		!slices.Contains(changes[0].Diff, "- MemoryMax=10M") ||
		changes[1].Name != "kubelet.service" {
		t.Errorf("the plan says %+v", changes)
	}
	if text := strings.Join(changes[0].Diff, "\n"); strings.Contains(text, "hunter2") ||
		!strings.Contains(text, "- Environment=HTTPS_PROXY=(not shown) B=(not shown)") {
		t.Errorf("passwords are in the plan, or variables are not:\n%s", text)
	}
	if n := files - len(h.Files()); n != 4 {
		t.Errorf("%d files are gone, want the 4 that changed the unit: %v", n, h.Log)
	}
	if !slices.Contains(h.Log, "daemon-reload") || !slices.Contains(h.Log, "restart kubelet.service") {
		t.Errorf("did %v", h.Log)
	}
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}
}

// All findings of all machines are reported at once, in a table for each machine. Nothing is changed.
// Proves P05.
func TestPreflightReportsAllFindingsOfAllMachines(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.hosts["machine.control"].Machine.Listening = []host.Listener{
		{Port: 6443, Network: "tcp", Process: "nginx, process 812"},
	}
	w.hosts["machine.control"].Machine.SyncDuration = time.Second
	w.hosts["machine.a"].Machine.OS = "alpine 3.20"
	w.hosts["machine.a"].Machine.Clock = time.Now().Add(time.Hour)
	w.hosts["machine.a"].Machine.Swap = 1 << 30
	w.unreachable["machine.b"] = errors.New("unreachable: no route to host")
	_, err := w.apply()
	for _, want := range []string{
		"machine.control (cluster.hcl:7): it cannot be what it is declared to be:\n  error    port " +
			"6443/tcp", "\n  warning  its disk takes more than 10ms",
		"machine.a (cluster.hcl:7): it cannot be what it is declared to be:\n  error    runs " +
			"alpine", "\n  error    its clock is 1h0m0s ahead", "\n  warning  has 1.0 GiB of swap",
		"machine.b (cluster.hcl:7): unreachable: no route to host",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	w.checkUnchanged(nil)
	delete(w.unreachable, "machine.b")
	for _, h := range w.hosts {
		h.Machine.Survey = host.Survey{FreeBytes: map[string]int64{host.LibraryDir: 1 << 20}}
		h.Machine.OS = "debian 12"
	}
	if _, err := w.apply(); err == nil || strings.Count(err.Error(), "has 1 MiB free") != 3 {
		t.Errorf("what is sent has no room: %v", err)
	}
	w.checkUnchanged(nil)
}
