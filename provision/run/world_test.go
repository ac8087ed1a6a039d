package run_test

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"clusterctl/daemons/config/inventory"
	"clusterctl/daemons/version"
	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
	"clusterctl/provision/run"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// world contains machines in memory, reached through agents with the real protocol.
type world struct {
	t           testing.TB
	hosts       map[string]*hostfake.Host // by address of the block
	hostsByIP   map[netip.Addr]*hostfake.Host
	unreachable map[string]error
	engine      *run.Engine
	clusterAPI  *fakeLive
	agents      sync.WaitGroup

	mu    sync.Mutex
	conns map[netip.Addr][]net.Conn // connections of agents
}

type fakeLive struct {
	mu           sync.Mutex
	drained      []string
	missing      []string
	endedObjects []state.Object
	planResult   []plan.Object   // the result of Plan
	applyEvents  []plan.Object   // the events of Apply
	extraEvents  [][]plan.Object // additional events of each call of Apply
	planError    error           // the error of Plan
	applyErrors  []error         // the error of each call of Apply; no error after the last

	objects         []state.Object   // the declared objects
	previousObjects [][]state.Object // the previously applied objects that each call of Apply received

	inventories []inventory.Inventory // the inventory that each call of Apply received

	nodeStatus  map[string]string // ready status of nodes
	kubelets    map[string]string // kubelet versions of nodes; default: this release's
	providerIDs map[string]string // provider IDs of nodes
	cordoned    map[string]bool
	drainError  error // the error of draining

	operations []string // the operations on nodes
	labelled   []string // nodes for which Apply was called
	admitted   int      // number of calls of AdmitReplicas
	dropped    int      // number of calls of DropFormerRights

	applied chan struct{} // if not nil, closed when something is applied
}

func (l *fakeLive) Plan(context.Context, *config.Cluster, []state.Object) ([]plan.Object, []state.Object, error) {
	return l.planResult, l.endedObjects, l.planError
}

func (l *fakeLive) Apply(
	_ context.Context,
	c *config.Cluster,
	before []state.Object,
	say func(plan.Object),
) ([]state.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.applyEvents {
		say(o)
	}
	if len(l.extraEvents) > 0 {
		for _, o := range l.extraEvents[0] {
			say(o)
		}
		l.extraEvents = l.extraEvents[1:]
	}
	for _, m := range c.Machines {
		l.labelled = append(l.labelled, m.Name)
	}
	l.previousObjects, l.inventories = append(l.previousObjects, before), append(l.inventories, c.Inventory)
	if l.applied != nil {
		close(l.applied)
		l.applied = nil
	}
	var refuses error
	if len(l.applyErrors) > 0 {
		refuses, l.applyErrors = l.applyErrors[0], l.applyErrors[1:]
	}
	return append([]state.Object{}, l.objects...), refuses
}

func (l *fakeLive) machines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.labelled)
}

func (l *fakeLive) Wait(context.Context, *config.Cluster, func(plan.Object)) error { return nil }

func (l *fakeLive) References(*config.Cluster) ([]state.Object, error) { return l.objects, nil }

func (l *fakeLive) Applied(context.Context, *config.Cluster) ([]state.Object, []string, error) {
	return l.objects, nil, l.planError
}

func (l *fakeLive) Revision(context.Context) (int64, error) { return 42, l.planError }

func (l *fakeLive) Missing(_ context.Context, list []state.Object) ([]state.Object, error) {
	return list, nil
}

func (l *fakeLive) Delete(context.Context, []state.Object) error { return nil }

func (l *fakeLive) AdmitReplicas(context.Context) error {
	l.admitted++
	return nil
}

func (l *fakeLive) DropFormerRights(context.Context) error {
	l.dropped++
	return l.planError
}

func (l *fakeLive) Nodes(context.Context) (map[string]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.nodeStatus), nil
}

func (l *fakeLive) Node(_ context.Context, name string) (ready, kubelet string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodeStatus[name] == "" {
		return "", "", nil
	}
	return l.nodeStatus[name], cmp.Or(l.kubelets[name], version.Kubernetes), nil
}

func (l *fakeLive) IsCordoned(_ context.Context, node string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cordoned[node], nil
}

func (l *fakeLive) Cordon(_ context.Context, node string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cordoned == nil {
		l.cordoned = map[string]bool{}
	}
	l.cordoned[node] = true
	l.operations = append(l.operations, "cordon "+node)
	return nil
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
	l.operations = append(l.operations, "drain "+node)
	return l.drainError
}

func (l *fakeLive) DeleteNode(_ context.Context, node string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.missing, node) {
		l.missing = append(l.missing, node)
		l.operations = append(l.operations, "forget "+node)
	}
	return nil
}

func (l *fakeLive) DeleteFormerNode(_ context.Context, node string, now inventory.Machine) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if current := l.providerIDs[node]; current == "" || current == now.ProviderID {
		return false, nil
	}
	delete(l.providerIDs, node)
	l.operations = append(l.operations, "forget former "+node)
	return true, nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := programsDir(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// programsDir returns a directory with the programs of a release and their compressed forms. All tests share it.
var programsDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "programs-")
	if err != nil {
		return "", err
	}
	for _, name := range bundle.Programs() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("program "+name), 0o755); err != nil {
			return dir, err
		}
	}
	files, err := bundle.Open(filepath.Join(dir, bundle.Clusterctl), filepath.Join(dir, "cache"))
	if err != nil {
		return dir, err
	}
	return dir, files.Pack()
})

func newWorld(t testing.TB, machines ...config.Machine) *world {
	t.Helper()
	programs, err := programsDir()
	if err != nil {
		t.Fatal(err)
	}
	files, err := bundle.Open(filepath.Join(programs, bundle.Clusterctl), filepath.Join(programs, "cache"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &world{
		t:           t,
		hosts:       map[string]*hostfake.Host{},
		hostsByIP:   map[netip.Addr]*hostfake.Host{},
		unreachable: map[string]error{},
		clusterAPI:  &fakeLive{},
	}
	w.engine = &run.Engine{
		Store: state.Store{
			Dir:    filepath.Join(dir, "state"),
			Sealer: state.Sealer{KeyFile: filepath.Join(dir, "age.key")},
		},
		Bundle: files, Dial: w.dial,
		ConnectCluster: func(*state.State, *config.Cluster) (session.Cluster, error) { return w.clusterAPI, nil },
	}
	w.declare(machines...)
	t.Cleanup(w.agents.Wait)
	return w
}

func (w *world) declare(machines ...config.Machine) {
	c := &config.Cluster{
		Name:     "home",
		Domain:   "cluster.local",
		Machines: machines,
		Runtime:  config.Runtime{Source: config.RuntimeBundle},
		PodCIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.244.0.0/16"),
		},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}
	c.Etcd.Members = config.EtcdMembers(len(c.ControlPlane()))
	w.engine.Config = c
	for _, m := range machines {
		if w.hostsByIP[m.IP] == nil {
			w.hostsByIP[m.IP] = &hostfake.Host{
				Machine: host.Facts{
					IsRoot:       true,
					CanAdjustOOM: true,
					OS:           "debian 12",
					CPUs:         2,
					Memory:       4 << 30,
					Addresses:    []string{m.IP.String()},
					Identity:     "of " + m.IP.String(),
				},
			}
		}
		w.hosts[m.Address] = w.hostsByIP[m.IP]
	}
}

func (w *world) dial(_ context.Context, m config.Machine) (session.Agent, error) {
	if err := w.unreachable[m.Address]; err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	w.mu.Lock()
	if w.conns == nil {
		w.conns = map[netip.Addr][]net.Conn{}
	}
	w.conns[m.IP] = append(w.conns[m.IP], far)
	w.mu.Unlock()
	w.agents.Add(1)
	go func() {
		defer w.agents.Done()
		_ = agent.Serve(context.Background(), w.hostsByIP[m.IP], far, far)
		_ = far.Close()
	}()
	return agent.NewClient(near), nil
}

// closeConnections closes all connections to a machine.
func (w *world) closeConnections(m config.Machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns[m.IP] {
		_ = c.Close()
	}
	w.conns[m.IP] = nil
}

// apply runs everything and returns the plan that was applied.
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
	return config.Machine{
		Address: "machine." + name,
		Name:    name,
		IP:      netip.MustParseAddr(ip),
		Roles:   roles,
		Source:  config.Source{File: "cluster.hcl", Line: 7},
	}
}

var (
	controlMachine = machine("control", "10.0.0.1", config.RoleControlPlane)
	machineA       = machine("a", "10.0.0.2", config.RoleNode)
	machineB       = machine("b", "10.0.0.3", config.RoleNode)
)
