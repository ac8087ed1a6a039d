package run_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
	"clusterctl/provision/run"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// world is machines in memory, reached by agents that speak the real protocol.
type world struct {
	t      *testing.T
	hosts  map[string]*hostfake.Host // by address of the block
	at     map[netip.Addr]*hostfake.Host
	down   map[string]error
	engine *run.Engine
	live   *fakeLive
	wait   sync.WaitGroup
}

type fakeLive struct {
	mu      sync.Mutex
	drained []string
	gone    []string
	ended   []state.Object
	refused error // what Plan answers

	objects []state.Object   // what is declared
	before  [][]state.Object // what each Apply was told of that was applied before

	ready    map[string]string // nodes
	cordoned map[string]bool
	stuck    error // what draining gives
}

func (l *fakeLive) Plan(context.Context, *config.Cluster, []state.Object) ([]plan.Object, []state.Object, error) {
	return nil, l.ended, l.refused
}

func (l *fakeLive) Apply(_ context.Context, _ *config.Cluster, before []state.Object, _ func(plan.Object)) ([]state.Object, error) {
	l.before = append(l.before, before)
	return append([]state.Object{}, l.objects...), nil
}

func (l *fakeLive) References(*config.Cluster) ([]state.Object, error) { return l.objects, nil }

func (l *fakeLive) Gone(_ context.Context, list []state.Object) ([]state.Object, error) {
	return list, nil
}

func (l *fakeLive) Delete(context.Context, []state.Object) error { return nil }

func (l *fakeLive) Nodes(context.Context) (map[string]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.ready), nil
}

func (l *fakeLive) Cordoned(_ context.Context, node string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cordoned[node], nil
}

func (l *fakeLive) Uncordon(_ context.Context, node string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cordoned, node)
	return nil
}

func (l *fakeLive) Drain(_ context.Context, node string, _ func(string)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cordoned == nil {
		l.cordoned = map[string]bool{}
	}
	l.cordoned[node] = true
	l.drained = append(l.drained, node)
	return l.stuck
}

func (l *fakeLive) Forget(_ context.Context, node string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = append(l.gone, node)
	return nil
}

func newWorld(t *testing.T, machines ...config.Machine) *world {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append([]string{"clusterctl", "etcd", "containerd", "containerd-shim-runc-v2", "runc", "pause"}, bundle.CNI...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("program "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := bundle.Open(filepath.Join(dir, "clusterctl"), filepath.Join(dir, "cache"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, hosts: map[string]*hostfake.Host{}, at: map[netip.Addr]*hostfake.Host{}, down: map[string]error{}, live: &fakeLive{}}
	w.engine = &run.Engine{
		Store:  state.Store{Dir: filepath.Join(dir, "state"), Sealer: state.Sealer{KeyFile: filepath.Join(dir, "age.key")}},
		Bundle: files, Dial: w.dial,
		Live: func(*state.State, *config.Cluster) (run.Cluster, error) { return w.live, nil },
	}
	w.declare(machines...)
	t.Cleanup(w.wait.Wait)
	return w
}

func (w *world) declare(machines ...config.Machine) {
	c := &config.Cluster{Name: "home", Domain: "cluster.local", Machines: machines, Runtime: config.Runtime{Source: config.RuntimeBundle},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	c.Etcd.Members = config.EtcdMembers(len(c.ControlPlane()))
	w.engine.Config = c
	for _, m := range machines {
		if w.at[m.IP] == nil {
			w.at[m.IP] = &hostfake.Host{Machine: host.Facts{Root: true, OOMAdjust: true, OS: "debian 12", CPUs: 2, Memory: 4 << 30, Addresses: []string{m.IP.String()}, Identity: "of " + m.IP.String()}}
		}
		w.hosts[m.Address] = w.at[m.IP]
	}
}

func (w *world) dial(_ context.Context, m config.Machine) (run.Agent, error) {
	if err := w.down[m.Address]; err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	w.wait.Add(1)
	go func() {
		defer w.wait.Done()
		_ = agent.Serve(context.Background(), w.at[m.IP], far, far)
		_ = far.Close()
	}()
	return agent.NewClient(near), nil
}

// apply runs everything and returns the plan that was carried out.
func (w *world) apply() (*plan.Plan, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := w.engine.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.Plan, p.Apply(ctx)
}

func (w *world) mustApply() *plan.Plan {
	w.t.Helper()
	p, err := w.apply()
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func machine(name, ip string, roles ...string) config.Machine {
	return config.Machine{Address: "machine." + name, Name: name, IP: netip.MustParseAddr(ip), Roles: roles, Source: config.Source{File: "cluster.hcl", Line: 7}}
}

var (
	control = machine("control", "10.0.0.1", config.RoleControlPlane)
	nodeA   = machine("a", "10.0.0.2", config.RoleNode)
	nodeB   = machine("b", "10.0.0.3", config.RoleNode)
)

// P02: applying again changes nothing, and says so.
func TestASecondApplyChangesNothing(t *testing.T) {
	w := newWorld(t, control, nodeA)
	if n, _ := w.mustApply().Count(plan.Create); n != 2 {
		t.Fatalf("%d machines created, want 2", n)
	}
	for _, h := range w.hosts {
		h.Log = nil
	}
	second := w.mustApply()
	if !second.Empty() || !strings.Contains(second.Summary(), "No changes") {
		t.Errorf("second plan is not empty: %+v", second.Machines)
	}
	for name, h := range w.hosts {
		if len(h.Log) > 0 {
			t.Errorf("%s was changed: %v", name, h.Log)
		}
	}
}

// P02: a file edited by hand is shown as a difference of that file, and put back.
func TestAnEditedUnitFileIsShownAndPutBack(t *testing.T) {
	w := newWorld(t, control, nodeA)
	w.mustApply()
	h, path := w.hosts["machine.a"], "/etc/systemd/system/kubelet.service"
	original, err := h.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.WriteFile(path, strings.NewReader(strings.Replace(string(original), "RestartSec=1", "RestartSec=9", 1)), 0o644, 0, 0); err != nil {
		t.Fatal(err)
	}
	h.Log = nil
	p := w.mustApply()
	changes := p.Machines[1].Changes
	if len(changes) != 2 || !slices.Equal(changes[0].Diff, []string{"- RestartSec=9", "+ RestartSec=1"}) || changes[1].Name != "kubelet.service" {
		t.Errorf("unexpected changes %+v", changes)
	}
	if got, _ := h.ReadFile(path); string(got) != string(original) {
		t.Error("the file was not put back")
	}
	if want := []string{"write " + path, "daemon-reload", "restart kubelet.service", "write /var/lib/clusterctl/units/kubelet.service"}; !slices.Equal(h.Log, want) {
		t.Errorf("did %v, want %v", h.Log, want)
	}
}

func TestNothingIsChangedWhenOneMachineIsUnreachable(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	w.down["machine.b"] = errors.New("unreachable: connection refused")
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

// P02: a plan takes a machine that is not reached neither for a clean nor for a gone one.
func TestAPlanShowsAnUnreachableMachineAsSuch(t *testing.T) {
	for name, declared := range map[string][]config.Machine{"clean": {control, nodeA, nodeB}, "changed": {control, nodeB, func() config.Machine { m := nodeA; m.Kubelet.MaxPods = 9; return m }()}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, control, nodeA, nodeB)
			w.mustApply()
			w.down["machine.a"] = errors.New("unreachable: no route to host")
			w.declare(declared...)
			w.engine.Look = true
			p, err := w.engine.Prepare(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if p.Plan.Empty() || !slices.Equal(p.Plan.Unreached(), []string{"machine.a"}) || !strings.Contains(p.Plan.Summary(), "1 machine not reached") {
				t.Errorf("plan: %+v", p.Plan)
			}
			if err := p.Unreached(); err == nil || !strings.Contains(err.Error(), "machine.a (cluster.hcl:7): unreachable") || !strings.Contains(err.Error(), "-exclude") {
				t.Errorf("error %v", err)
			}
			w.engine.Look = false
			if _, err := w.apply(); err == nil {
				t.Error("apply goes on")
			}
			w.engine.Excludes = []string{"machine.a"}
			w.mustApply()
			w.engine.Excludes = nil
			delete(w.down, "machine.a")
		})
	}
}

func TestPreflightRefusesForeignEtcdDataAndAForeignAddress(t *testing.T) {
	w := newWorld(t, control)
	foreign := host.AppendEtcdData(nil, host.EtcdData{Cluster: 0xbad, Member: 1})
	if err := w.hosts["machine.control"].WriteFile("/var/lib/etcd/member/wal/0.wal", bytes.NewReader(foreign), 0o600, 0, 0); err != nil {
		t.Fatal(err)
	}
	w.hosts["machine.control"].Machine.Addresses = []string{"192.0.2.9"}
	_, err := w.apply()
	if err == nil || !strings.Contains(err.Error(), "another cluster") || !strings.Contains(err.Error(), "192.0.2.9") {
		t.Errorf("error %v names not both findings", err)
	}
}

// P05: a plan whose objects could not be compared says so and fails, rather than that there is nothing to change.
func TestAPlanThatCouldNotCompareObjectsIsNotWhole(t *testing.T) {
	w := newWorld(t, control)
	w.live.objects = []state.Object{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", Address: "object.v1.ConfigMap.a"}, {APIVersion: "v1", Kind: "ConfigMap", Name: "b", Address: "object.v1.ConfigMap.b"}}
	if p := w.mustApply(); !strings.Contains(p.Summary(), "1 to create, 0 to change, 0 to remove; objects: 2 to create") {
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

// P05: what cannot change while something runs is refused at its place, before anything is touched; the cluster can still be destroyed.
func TestNetworksAndTheDomainDoNotChange(t *testing.T) {
	w := newWorld(t, control, nodeA)
	w.mustApply()
	logged := w.logged()
	w.engine.Config.Source = config.Source{File: "cluster.hcl", Line: 3}
	w.engine.Config.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	w.engine.Config.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}
	w.engine.Config.Domain = "example.org"
	_, err := w.apply()
	for _, want := range []string{"cluster.hcl:3: pod_cidrs was 10.244.0.0/16", "service_cidrs was 10.96.0.0/16", "domain was cluster.local"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	w.unchanged(logged)
	w.engine.Destroy = true
	w.mustApply()
}

// P07: a machine that is no longer declared is drained, cleaned and forgotten.
func TestARemovedNodeIsDrainedAndCleaned(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	w.mustApply()
	w.declare(control, nodeA)
	p := w.mustApply()
	if n, _ := p.Count(plan.Remove); n != 1 {
		t.Fatalf("%d machines removed, want 1", n)
	}
	if !slices.Equal(w.live.drained, []string{"b"}) || !slices.Equal(w.live.gone, []string{"b"}) {
		t.Errorf("drained %v and forgot %v, want b", w.live.drained, w.live.gone)
	}
	for _, path := range w.hosts["machine.b"].Files() {
		if !strings.HasPrefix(path, "/proc/") {
			t.Errorf("%s is left behind", path)
		}
	}
	if again := w.mustApply(); !again.Empty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}
}

// P07: the cluster is rid of a dead machine without it, its etcd member included.
func TestADeadControlPlaneMachineIsRemovedWithoutIt(t *testing.T) {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6", config.RoleControlPlane)
	w := newWorld(t, control, second, third)
	store := hostfake.NewEtcd("control", "second", "third")
	for _, h := range w.hosts {
		h.Store = store
	}
	w.mustApply()
	w.down["machine.control"] = errors.New("no route to host")
	w.declare(second, third)
	w.mustApply()
	members, err := store.Members(t.Context())
	if err != nil || len(members) != 2 {
		t.Errorf("members %v, %v: want those of the machines that stay", members, err)
	}
	if again := w.mustApply(); !again.Empty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}
}

func TestAFailedUnitIsNamedAndTheNextRunGoesOn(t *testing.T) {
	w := newWorld(t, control, nodeA)
	w.hosts["machine.a"].Fail = map[string]error{"kubelet.service": errors.New("exit 1")}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "kubelet.service") || !strings.Contains(err.Error(), "machine.a") {
		t.Fatalf("error %v does not name unit and machine", err)
	}
	w.hosts["machine.a"].Fail = nil
	w.mustApply()
	if again := w.mustApply(); !again.Empty() {
		t.Error("not empty after the run that went on")
	}
}

func TestASavedPlanIsRefusedWhenTheWorldMovedOn(t *testing.T) {
	w := newWorld(t, control, nodeA)
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	saved := plan.Saved{Format: plan.SavedFormat, Serial: p.State.Serial, Fingerprint: p.Plan.Fingerprint(), Plan: p.Plan}
	if err := saved.Check(p.State.Serial, p.Plan); err != nil {
		t.Errorf("refused at once: %v", err)
	}
	if err := w.hosts["machine.a"].WriteFile("/etc/kubernetes/pki/ca.crt", strings.NewReader("other"), 0o644, 0, 0); err != nil {
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

// P04: keys are never in the state, a plan or an event in plain text.
func TestKeysAreNowhereInPlainText(t *testing.T) {
	w := newWorld(t, control)
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
	if info, err := w.hosts["machine.control"].Stat("/etc/kubernetes/pki/ca.key"); err != nil || info.Mode.Perm() != 0o600 {
		t.Errorf("ca.key: %v, %v", info, err)
	}
}

// P04: a value that was secret when it was applied is not shown by the change that takes it away.
func TestFormerSecretsAreNotShown(t *testing.T) {
	w := newWorld(t, control)
	w.engine.Config.Secrets = []string{"old-secret"}
	w.mustApply()
	w.declare(control)
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
	w := newWorld(t, control, nodeA)
	w.mustApply()
	w.engine.Destroy = true
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

// P07: a member that lost its disk joins anew instead of beginning a store of its own.
func TestAMemberThatLostItsDataJoinsAnew(t *testing.T) {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6", config.RoleControlPlane)
	w := newWorld(t, control, second, third)
	w.mustApply()
	store := hostfake.NewEtcd("control", "second", "third")
	for _, h := range w.hosts {
		h.Store = store
	}
	h := w.hosts["machine.second"]
	if err := h.RemoveAll("/var/lib/etcd"); err != nil {
		t.Fatal(err)
	}
	w.mustApply()
	unit, err := h.ReadFile("/etc/systemd/system/etcd.service")
	if err != nil || !strings.Contains(string(unit), "--initial-cluster-state=existing") {
		t.Errorf("the member starts as one of a new store: %s, %v", unit, err)
	}
	members, _ := store.Members(t.Context())
	if len(members) != 3 || members[2].PeerURL != "https://10.0.0.5:2380" {
		t.Errorf("members %+v: the second was not replaced", members)
	}
}

// P07: a machine that was dead when it was removed comes back with its member's data. The
// data is of this cluster, so it is cleaned and the machine joins; another cluster's is refused.
func TestAFormerMemberComesBack(t *testing.T) {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6", config.RoleControlPlane)
	w := newWorld(t, control, second, third)
	store := hostfake.NewEtcd("control", "second", "third")
	for _, h := range w.hosts {
		h.Store = store
	}
	w.mustApply()
	w.down["machine.control"] = errors.New("no route to host")
	w.declare(second, third)
	w.mustApply()

	delete(w.down, "machine.control")
	h := w.hosts["machine.control"]
	if err := h.Stop(t.Context(), "etcd.service"); err != nil { // the store does not let it in
		t.Fatal(err)
	}
	w.declare(control, second, third)
	p := w.mustApply()
	cleaned := slices.ContainsFunc(p.Machines[0].Changes, func(c step.Change) bool {
		return c.Action == step.Delete && c.Name == "/var/lib/etcd" && c.Note == "left by a former member"
	})
	if !cleaned {
		t.Errorf("the plan does not say that the data goes: %+v", p.Machines[0].Changes)
	}
	members, err := store.Members(t.Context())
	if err != nil || len(members) != 3 || slices.ContainsFunc(members, func(m host.Member) bool { return m.Learner }) {
		t.Errorf("members %+v, %v: want three with a vote", members, err)
	}
	if again := w.mustApply(); !again.Empty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}

	fourth, fifth := machine("fourth", "10.0.0.7", config.RoleControlPlane), machine("fifth", "10.0.0.8", config.RoleControlPlane)
	w.declare(control, second, third, fourth, fifth)
	foreign := host.AppendEtcdData(nil, host.EtcdData{Cluster: 0xbad, Member: 1})
	if err := w.hosts["machine.fourth"].WriteFile("/var/lib/etcd/member/wal/0.wal", bytes.NewReader(foreign), 0o600, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "machine.fourth") || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("error %v does not refuse another cluster's data", err)
	}
}

func TestTheOnlyMemberWithoutItsDataIsRefused(t *testing.T) {
	w := newWorld(t, control)
	w.mustApply()
	if err := w.hosts["machine.control"].RemoveAll("/var/lib/etcd"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "snapshot") {
		t.Errorf("error %v does not say what to do", err)
	}
}

// P05: a slip of the pen in what is to be spared, or to be changed alone, is not taken for nothing.
func TestASelectionThatNamesNothingIsRefused(t *testing.T) {
	w := newWorld(t, control, nodeA)
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
