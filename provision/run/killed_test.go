package run_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"clusterctl/daemons/config/inventory"
	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/tests/tools/amount"
)

// operator is a process that is killed at one of its events. Its connections end, and it changes nothing afterwards,
// neither the state nor the cluster. Agents complete the step that they have begun.
type operator struct {
	w            *world
	killEvent    int // number of the event; zero: never
	mu           sync.Mutex
	events       int
	steps        int
	lastEvent    report.Event
	conns        []net.Conn
	folderAtKill map[string][]byte // content of the state's folder when it is killed
}

// killStride selects every n-th step that agents report. With 1, the test takes a minute of CPU time.
var killStride = flag.Int("killed-stride", 8,
	"operators are killed at each so many-th step that an agent has done, and at everything else")

var errKilled = errors.New("killed")

// applyKilled applies the declared configuration with an operator that is killed at an event, and reports whether the
// event occurred.
func (w *world) applyKilled(at int) (op *operator, hit bool) {
	w.t.Helper()
	op = &operator{w: w, killEvent: at}
	engine := *w.engine
	engine.Report = op.report
	engine.Dial = op.dial
	engine.ConnectCluster = func(*state.State, *config.Cluster) (session.Cluster, error) {
		return &killableCluster{w.clusterAPI, op}, nil
	}
	p, err := engine.Prepare(w.t.Context())
	if err == nil {
		err = p.Apply(w.t.Context())
		p.Close()
	}
	w.agents.Wait() // for the agents
	if op.folderAtKill == nil {
		if err != nil {
			w.t.Fatal(err)
		}
		return op, false
	}
	w.writeFolder(op.folderAtKill)
	return op, true
}

func (op *operator) report(e report.Event) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if e.Kind == report.Step {
		if op.steps++; op.steps%*killStride != 0 {
			return
		}
	}
	if op.events++; op.events == op.killEvent {
		op.lastEvent, op.folderAtKill = e, op.w.readFolder()
		for _, c := range op.conns {
			_ = c.Close()
		}
	}
}

func (op *operator) isDead() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.folderAtKill != nil
}

func (op *operator) dial(_ context.Context, m config.Machine) (session.Agent, error) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.folderAtKill != nil {
		return nil, errKilled
	}
	near, far := net.Pipe()
	op.conns = append(op.conns, near)
	op.w.agents.Go(func() {
		_ = agent.Serve(context.Background(), op.w.hostsByIP[m.IP], far, far)
		_ = far.Close()
	})
	return agent.NewClient(near), nil
}

// readFolder returns the files in the state's folder.
func (w *world) readFolder() map[string][]byte {
	files := map[string][]byte{}
	entries, err := os.ReadDir(w.engine.Store.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if files[e.Name()], err = os.ReadFile(w.engine.Store.Dir + "/" + e.Name()); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
	}
	return files
}

func (w *world) writeFolder(files map[string][]byte) {
	for name := range w.readFolder() {
		if err := os.Remove(w.engine.Store.Dir + "/" + name); err != nil {
			w.t.Fatal(err)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(w.engine.Store.Dir+"/"+name, text, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// killableCluster is a cluster that refuses the requests of a killed operator.
type killableCluster struct {
	*fakeLive
	op *operator
}

func (m *killableCluster) Nodes(ctx context.Context) (map[string]string, error) {
	if m.op.isDead() {
		return nil, errKilled
	}
	return m.fakeLive.Nodes(ctx)
}

func (m *killableCluster) Apply(
	ctx context.Context,
	c *config.Cluster,
	before []state.Object,
	say func(plan.Object),
) ([]state.Object, error) {
	if m.op.isDead() {
		return nil, errKilled
	}
	return m.fakeLive.Apply(ctx, c, before, say)
}

func (m *killableCluster) Cordon(ctx context.Context, node string) error {
	if m.op.isDead() {
		return errKilled
	}
	return m.fakeLive.Cordon(ctx, node)
}

func (m *killableCluster) Uncordon(ctx context.Context, node string) error {
	if m.op.isDead() {
		return errKilled
	}
	return m.fakeLive.Uncordon(ctx, node)
}

func (m *killableCluster) Drain(ctx context.Context, node string, say func(string)) error {
	if m.op.isDead() {
		return errKilled
	}
	return m.fakeLive.Drain(ctx, node, say)
}

func (m *killableCluster) DeleteNode(ctx context.Context, node string) error {
	if m.op.isDead() {
		return errKilled
	}
	return m.fakeLive.DeleteNode(ctx, node)
}

func (m *killableCluster) DeleteFormerNode(ctx context.Context, node string, now inventory.Machine) (bool, error) {
	if m.op.isDead() {
		return false, errKilled
	}
	return m.fakeLive.DeleteFormerNode(ctx, node, now)
}

// The operator is killed at each event of a first apply, a change and a removal. Each time, the next apply completes
// the work and leaves nothing to do. Authorities are never created a second time, and removed machines are gone.
// Proves P02.
func TestTheNextApplyCompletesAKilledRun(t *testing.T) {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6",
		config.RoleControlPlane)
	all := []config.Machine{controlMachine, second, third, machineA, machineB}
	changed := func(list []config.Machine) (changed []config.Machine) {
		for _, m := range list {
			m.Kubelet.Choose("max_pods", 77)
			changed = append(changed, m)
		}
		return changed
	}
	for name, work := range map[string]struct {
		before, after []config.Machine
		members       []string // of etcd, at the beginning
	}{
		"first apply": {nil, all, []string{"control", "second", "third"}},
		"change":      {all, changed(all), []string{"control", "second", "third"}},
		"removal": {all, []config.Machine{controlMachine, second, machineA},
			[]string{"control", "second", "third"}},
		"addition": {[]config.Machine{controlMachine, machineA}, all, []string{"control"}},
	} {
		t.Run(name, func(t *testing.T) {
			points, stride := 0, amount.Scaled(1, 12)
			for at, more := 1, true; more; at += stride {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, all...)
					if work.before != nil {
						w.declare(work.before...)
						w.mustApply()
					}
					store := hostfake.NewEtcd(work.members...)
					for _, h := range w.hostsByIP {
						h.Store = store
					}
					w.clusterAPI.nodeStatus = map[string]string{"a": "True", "b": "True"}
					w.declare(work.after...)
					w.engine.AllowedLosses = []string{"machine.third", "machine.b"}
					op, hit := w.applyKilled(at)
					if more = hit; !hit {
						return
					}
					points++
					where := fmt.Sprintf("killed at %d, %s %s %s: ", at, op.lastEvent.Kind, op.lastEvent.Machine,
						op.lastEvent.Message)
					authorities := w.authorities(op.folderAtKill)
					if _, err := w.applyWithoutLimit(); err != nil {
						t.Fatalf("%s%v", where, err)
					}
					again, err := w.applyWithoutLimit()
					if err != nil || !again.IsEmpty() {
						t.Fatalf("%snot empty afterwards: %v %+v", where, err, again)
					}
					if now := w.authorities(w.readFolder()); authorities != nil &&
						!maps.EqualFunc(now, authorities, func(a, b []byte) bool { return string(a) == string(b) }) {
						t.Errorf("%sthe authorities are others", where)
					}
					for _, m := range all {
						if _, declared := w.declared(m.Address); declared {
							continue
						}
						for _, path := range w.hostsByIP[m.IP].Files() {
							if !strings.HasPrefix(path, "/proc/") {
								t.Errorf("%s%s is left behind on %s", where, path, m.Address)
							}
						}
					}
				})
			}
			if points*stride < 5 {
				t.Errorf("killed at %d points", points)
			}
			t.Logf("killed at %d points", points)
		})
	}
}

func (w *world) declared(address string) (config.Machine, bool) {
	for _, m := range w.engine.Config.Machines {
		if m.Address == address {
			return m, true
		}
	}
	return config.Machine{}, false
}

// authorities returns the authorities of a written state, or nil without a state.
func (w *world) authorities(folder map[string][]byte) map[string][]byte {
	w.t.Helper()
	if folder["state.json"] == nil {
		return nil
	}
	s, err := w.engine.Store.Read()
	if err != nil {
		w.t.Fatal(err)
	}
	return s.CAs
}
