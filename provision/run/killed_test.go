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
	"clusterctl/provision/run"
	"clusterctl/provision/state"
	"clusterctl/tests/amount"
)

// operator is a process that is killed at one of its events. Its connections end, and it changes nothing afterwards,
// neither the state nor the cluster. Agents complete the step that they have begun.
type operator struct {
	w     *world
	at    int // number of the event; zero: never
	mu    sync.Mutex
	seen  int
	steps int
	last  run.Event
	conns []net.Conn
	left  map[string][]byte // content of the state's folder when it is killed
}

// stride selects every n-th step that agents report. With 1, the test takes a minute of CPU time.
var stride = flag.Int(
	"killed-stride",
	8,
	"operators are killed at each so many-th step that an agent has done, and at everything else",
)

var errKilled = errors.New("killed")

// killed applies the declared configuration with an operator that is killed at an event, and reports whether the event
// occurred.
func (w *world) killed(at int) (op *operator, hit bool) {
	w.t.Helper()
	op = &operator{w: w, at: at}
	engine := *w.engine
	engine.Say = op.say
	engine.Dial = op.dial
	engine.Live = func(*state.State, *config.Cluster) (run.Cluster, error) { return &mortal{w.live, op}, nil }
	p, err := engine.Prepare(w.t.Context())
	if err == nil {
		err = p.Apply(w.t.Context())
		p.Close()
	}
	w.wait.Wait() // for the agents
	if op.left == nil {
		if err != nil {
			w.t.Fatal(err)
		}
		return op, false
	}
	w.lay(op.left)
	return op, true
}

func (op *operator) say(e run.Event) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if e.Kind == run.EventStep {
		if op.steps++; op.steps%*stride != 0 {
			return
		}
	}
	if op.seen++; op.seen == op.at {
		op.last, op.left = e, op.w.folder()
		for _, c := range op.conns {
			_ = c.Close()
		}
	}
}

func (op *operator) dead() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.left != nil
}

func (op *operator) dial(_ context.Context, m config.Machine) (run.Agent, error) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.left != nil {
		return nil, errKilled
	}
	near, far := net.Pipe()
	op.conns = append(op.conns, near)
	op.w.wait.Go(func() {
		_ = agent.Serve(context.Background(), op.w.at[m.IP], far, far)
		_ = far.Close()
	})
	return agent.NewClient(near), nil
}

// folder returns the files in the state's folder.
func (w *world) folder() map[string][]byte {
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

func (w *world) lay(files map[string][]byte) {
	for name := range w.folder() {
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

// mortal is a cluster that refuses the requests of a killed operator.
type mortal struct {
	*fakeLive
	op *operator
}

func (m *mortal) Nodes(ctx context.Context) (map[string]string, error) {
	if m.op.dead() {
		return nil, errKilled
	}
	return m.fakeLive.Nodes(ctx)
}

func (m *mortal) Apply(
	ctx context.Context,
	c *config.Cluster,
	before []state.Object,
	say func(plan.Object),
) ([]state.Object, error) {
	if m.op.dead() {
		return nil, errKilled
	}
	return m.fakeLive.Apply(ctx, c, before, say)
}

func (m *mortal) Cordon(ctx context.Context, node string) error {
	if m.op.dead() {
		return errKilled
	}
	return m.fakeLive.Cordon(ctx, node)
}

func (m *mortal) Uncordon(ctx context.Context, node string) error {
	if m.op.dead() {
		return errKilled
	}
	return m.fakeLive.Uncordon(ctx, node)
}

func (m *mortal) Drain(ctx context.Context, node string, say func(string)) error {
	if m.op.dead() {
		return errKilled
	}
	return m.fakeLive.Drain(ctx, node, say)
}

func (m *mortal) Forget(ctx context.Context, node string) error {
	if m.op.dead() {
		return errKilled
	}
	return m.fakeLive.Forget(ctx, node)
}

func (m *mortal) ForgetFormer(ctx context.Context, node string, now inventory.Machine) (bool, error) {
	if m.op.dead() {
		return false, errKilled
	}
	return m.fakeLive.ForgetFormer(ctx, node, now)
}

// The operator is killed at each event of a first apply, a change and a removal. Each time, the next apply completes
// the work and leaves nothing to do. Authorities are never created a second time, and removed machines are gone.
// Proves P02.
func TestWhereverTheOperatorIsKilledTheNextApplyEndsIt(t *testing.T) {
	second, third := machine(
		"second",
		"10.0.0.5",
		config.RoleControlPlane,
	), machine(
		"third",
		"10.0.0.6",
		config.RoleControlPlane,
	)
	all := []config.Machine{control, second, third, nodeA, nodeB}
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
		"removal":     {all, []config.Machine{control, second, nodeA}, []string{"control", "second", "third"}},
		"addition":    {[]config.Machine{control, nodeA}, all, []string{"control"}},
	} {
		t.Run(name, func(t *testing.T) {
			points, stride := 0, amount.Of(1, 3)
			for at, more := 1, true; more; at += stride {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, all...)
					if work.before != nil {
						w.declare(work.before...)
						w.mustApply()
					}
					store := hostfake.NewEtcd(work.members...)
					for _, h := range w.at {
						h.Store = store
					}
					w.live.ready = map[string]string{"a": "True", "b": "True"}
					w.declare(work.after...)
					w.engine.Losses = []string{"machine.third", "machine.b"}
					op, hit := w.killed(at)
					if more = hit; !hit {
						return
					}
					points++
					where := fmt.Sprintf("killed at %d, %s %s %s: ", at, op.last.Kind, op.last.Machine, op.last.Message)
					authorities := w.authorities(op.left)
					if _, err := w.longApply(); err != nil {
						t.Fatalf("%s%v", where, err)
					}
					again, err := w.longApply()
					if err != nil || !again.Empty() {
						t.Fatalf("%snot empty afterwards: %v %+v", where, err, again)
					}
					if now := w.authorities(w.folder()); authorities != nil &&
						!maps.EqualFunc(now, authorities, func(a, b []byte) bool { return string(a) == string(b) }) {
						t.Errorf("%sthe authorities are others", where)
					}
					for _, m := range all {
						if _, declared := w.declared(m.Address); declared {
							continue
						}
						for _, path := range w.at[m.IP].Files() {
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
