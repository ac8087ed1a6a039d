package run_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// block returns a machine with another block address.
func block(m config.Machine, address string) config.Machine {
	m.Address = "machine." + address
	return m
}

// unchanged fails the test if a machine was changed since its log had the given length.
func (w *world) unchanged(logged map[netip.Addr]int) {
	w.t.Helper()
	for ip, h := range w.at {
		if len(h.Log) != logged[ip] {
			w.t.Errorf("%s was changed: %v", ip, h.Log[logged[ip]:])
		}
	}
}

func (w *world) logged() map[netip.Addr]int {
	list := map[netip.Addr]int{}
	for ip, h := range w.at {
		list[ip] = len(h.Log)
	}
	return list
}

// actions returns the actions of a plan by the machines' addresses.
func actions(p *plan.Plan) map[string]string {
	list := map[string]string{}
	for _, m := range p.Machines {
		list[m.Address] = m.Action
	}
	return list
}

// Renaming the block of a machine does not make it another machine.
// Proves P05.
func TestARenamedBlockIsAMoveAndChangesNothing(t *testing.T) {
	for name, renamed := range map[string][]config.Machine{
		"labels":    {block(control, "first"), block(nodeA, "worker"), block(nodeB, "other")},
		"exchanged": {control, block(nodeA, "b"), block(nodeB, "a")},
		"for_each":  {control, block(nodeA, `node["a"]`), block(nodeB, `node["b"]`)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, control, nodeA, nodeB)
			w.mustApply()
			logged := w.logged()
			w.declare(renamed...)
			p := w.mustApply()
			w.unchanged(logged)
			for _, m := range renamed {
				want := plan.Move
				if m.Address == "machine."+m.Name {
					want = plan.None
				}
				if got := actions(p)[m.Address]; got != want {
					t.Errorf("%s: action %q, want %q", m.Address, got, want)
				}
			}
			if len(w.live.gone)+len(w.live.drained) > 0 {
				t.Errorf("forgot %v, drained %v", w.live.gone, w.live.drained)
			}
			if p := w.mustApply(); !p.Empty() {
				t.Errorf("a second apply would do %v", actions(p))
			}
		})
	}
}

// If the first of several machines is removed from a list, the indexes of the others change, and only the first is
// removed.
// Proves P05.
func TestTheFirstOfSeveralIsRemovedAndNoOther(t *testing.T) {
	nodeC := machine("c", "10.0.0.4", config.RoleNode)
	w := newWorld(t, control, block(nodeA, "node[0]"), block(nodeB, "node[1]"), block(nodeC, "node[2]"))
	w.mustApply()
	logged := w.logged()
	w.declare(control, block(nodeB, "node[0]"), block(nodeC, "node[1]"))
	p := w.mustApply()
	if left := w.at[nodeA.IP].Files(); slices.ContainsFunc(
		left,
		func(path string) bool { return !strings.HasPrefix(path, "/proc/") },
	) {
		t.Errorf("the first was not cleaned: %v", left)
	}
	for _, ip := range []netip.Addr{nodeB.IP, nodeC.IP} {
		if log := w.at[ip].Log[logged[ip]:]; slices.ContainsFunc(
			log,
			func(line string) bool { return strings.Contains(line, "kubelet") },
		) {
			t.Errorf("the kubelet of %s was changed: %v", ip, log)
		}
	}
	from := map[string]string{}
	for _, m := range p.Machines {
		from[m.Address] = m.From
	}
	if got := actions(p); got["machine.node[0] (former)"] != plan.Remove ||
		from["machine.node[0]"] != "machine.node[1]" ||
		from["machine.node[1]"] != "machine.node[2]" {
		t.Errorf("the plan was %v, moved from %v", got, from)
	}
	if !slices.Equal(w.live.gone, []string{"a"}) {
		t.Errorf("forgot %v", w.live.gone)
	}
	if p := w.mustApply(); !p.Empty() {
		t.Errorf("a second apply would do %v", actions(p))
	}
}

// A change that cannot be a move is refused before any change, with the text to write instead.
// Proves P05.
func TestWhatWouldMakeAnotherMachineOfOneIsRefused(t *testing.T) {
	at := func(m config.Machine, ip string) config.Machine {
		m.IP = netip.MustParseAddr(ip)
		return m
	}
	named := func(m config.Machine, name string) config.Machine {
		m.Name = name
		return m
	}
	const second = "10.0.9.3" // a second address of a machine
	for name, test := range map[string]struct {
		declared []config.Machine
		also     string // block whose machine also has that address
		want     []string
	}{
		"its name is another":           {[]config.Machine{control, nodeA, named(nodeB, "x")}, "", []string{"machine.b", `name = "b"`, "cluster.hcl:7"}},
		"its block and name are others": {[]config.Machine{control, nodeA, named(block(nodeB, "x"), "x")}, "", []string{"machine.x", "was applied as machine.b", `name = "b"`}},
		"another machine in its block": {[]config.Machine{control, nodeA, at(nodeB, "10.0.0.9")}, "",
			[]string{"machine.b", "10.0.0.3", "is another", "block of its own"}},
		"a control plane's address": {[]config.Machine{at(control, "10.0.9.1"), nodeA, nodeB}, "10.0.0.1",
			[]string{"machine.control", "its address was 10.0.0.1"}},
		"it has a second address": {[]config.Machine{control, nodeA,
			at(named(block(nodeB, "x"), "x"), second)}, "10.0.0.3", []string{"machine.b", "same machine as " +
			"machine.x", "it would be cleaned"}},
		"its name in a block of another one's": {[]config.Machine{control, nodeA, at(block(nodeB, "x"), "10.0.0.9")},
			"", []string{"machine.x", "is another"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, control, nodeA, nodeB)
			w.mustApply()
			w.declare(test.declared...)
			if test.also != "" {
				had := w.at[netip.MustParseAddr(test.also)]
				for _, m := range test.declared {
					if strings.HasPrefix(m.IP.String(), "10.0.9.") {
						had.Machine.Addresses = []string{test.also, m.IP.String()}
						w.at[m.IP] = had
					}
				}
			}
			logged := w.logged()
			_, err := w.apply()
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
			w.unchanged(logged)
		})
	}
}

// A node can change its address and remains the same machine.
// Proves P05.
func TestANodeMayHaveAnotherAddress(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	w.mustApply()
	moved := nodeB
	moved.IP = netip.MustParseAddr("10.0.9.3")
	h := w.at[nodeB.IP]
	h.Machine.Addresses = []string{"10.0.9.3"}
	w.at[moved.IP] = h
	w.declare(control, nodeA, moved)
	p := w.mustApply()
	if got := actions(p)["machine.b"]; got != plan.Change {
		t.Errorf("action %q", got)
	}
	if len(w.live.gone) > 0 {
		t.Errorf("forgot %v", w.live.gone)
	}
	if p := w.mustApply(); !p.Empty() {
		t.Errorf("a second apply would do %v", actions(p))
	}
}

// An object whose block is renamed is not removed, even if only its former block is selected.
// Proves P05.
func TestARenamedObjectIsNotRemoved(t *testing.T) {
	object := state.Object{
		APIVersion: "apps/v1",
		Kind:       "Deployment",
		Namespace:  "default",
		Name:       "web",
		Address:    "workload.web",
	}
	w := newWorld(t, control)
	w.live.objects = []state.Object{object}
	w.mustApply()
	renamed := object
	renamed.Address = "workload.site"
	w.live.objects = []state.Object{renamed}
	w.engine.Targets = []string{"workload.web"}
	w.live.before = nil
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Plan.Pending = true // makes the run compare objects again
	if err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, before := range w.live.before {
		if slices.Contains(before, object) {
			t.Error("it is taken for one that nobody declares")
		}
	}
	if len(w.live.before) == 0 {
		t.Error("nothing was applied")
	}
}

// A machine that was removed while it was unreachable still has certificates that were revoked. It gets new ones when
// it returns.
// Proves P03.
func TestAMachineThatComesBackGetsCertificatesThatAreTaken(t *testing.T) {
	w := newWorld(t, control, nodeA, nodeB)
	w.mustApply()
	w.down["machine.b"] = errors.New("no route to host")
	w.declare(control, nodeA)
	w.mustApply()
	delete(w.down, "machine.b")
	const path = "/etc/kubernetes/pki/kubelet.crt"
	before, err := w.at[nodeB.IP].ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.declare(control, nodeA, nodeB)
	p := w.mustApply()
	after, err := w.at[nodeB.IP].ReadFile(path)
	if err != nil || string(after) == string(before) {
		t.Errorf("it has the certificate that was revoked, %v", err)
	}
	said := 0
	for _, m := range p.Machines {
		for _, c := range m.Changes {
			if c.Note == "was revoked" && m.Address == "machine.b" {
				said++
			}
		}
	}
	if said == 0 {
		t.Errorf("the plan does not say why: %+v", p.Machines)
	}
	if p := w.mustApply(); !p.Empty() {
		t.Errorf("a second apply would do %v", actions(p))
	}
}

// A machine that was reinstalled under its name is a new machine to the cluster. The former Node is deleted before the
// kubelet starts. Otherwise the kubelet would continue with it, with the provider ID that a Node keeps and with pods
// that no longer exist. The new Node gets its labels when it exists.
// Proves S22.
func TestANodeThatWasInstalledAnewGetsANodeOfItsOwn(t *testing.T) {
	both := machine("second", "10.0.0.5", config.RoleControlPlane, config.RoleNode)
	for name, m := range map[string]config.Machine{"a node": nodeA, "one of the control plane": both} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, control, both, nodeA, nodeB)
			w.mustApply()
			was := w.live.inventories[len(w.live.inventories)-1]
			w.live.ready = map[string]string{"second": "True", "a": "True", "b": "True"}
			w.live.provided = map[string]string{
				"second": was["second"].ProviderID,
				"a":      was["a"].ProviderID,
				"b":      was["b"].ProviderID,
			}
			fresh := &hostfake.Host{Machine: w.at[m.IP].Machine, Starts: func(unit string) {
				if w.live.provided[m.Name] != "" && unit == "kubelet.service" {
					t.Error("the kubelet started as the former machine's node")
				}
				if slices.Contains(w.live.machines(), m.Name) {
					t.Errorf("the node was labelled before its %s started", unit)
				}
			}}
			fresh.Machine.Identity = "of a new installation"
			w.at[m.IP], w.hosts[m.Address] = fresh, fresh
			w.live.labelled, w.live.order = nil, nil
			fresh.Fail = map[string]error{"kubelet.service": errors.New("exit 1")}
			if _, err := w.apply(); err == nil || slices.Contains(w.live.machines(), m.Name) {
				t.Errorf("the kubelet does not start, and the node was labelled, which makes one: %v", err)
			}
			again := &hostfake.Host{Machine: fresh.Machine, Starts: fresh.Starts} // reinstalled again
			again.Machine.Identity = "of the next installation"
			fresh, w.at[m.IP], w.hosts[m.Address] = again, again, again
			w.live.provided[m.Name], w.live.labelled, w.live.order = was[m.Name].ProviderID, nil, nil
			if note := plannedMachine(w.mustApply(), m.Address).Note; !strings.Contains(
				note,
				"it was installed anew: the Node of the former machine is deleted, with its pods",
			) {
				t.Errorf("the plan says %q", note)
			}
			if want := []string{"forget former " + m.Name}; !slices.Equal(w.live.order, want) {
				t.Errorf("done to nodes was %v, want %v", w.live.order, want)
			}
			if !slices.Contains(w.live.machines(), m.Name) {
				t.Errorf("labelled are %v", w.live.machines())
			}
			fresh.Starts = nil
			w.live.provided[m.Name], w.live.order = was[m.Name].ProviderID, nil
			w.edit(m.Address, kubeletFile)
			w.mustApply()
			if slices.Contains(w.live.order, "forget former "+m.Name) {
				t.Error("the Node of a machine that works was taken away")
			}
		})
	}
}

// A machine that belongs to another cluster is neither taken over nor cleaned.
// Proves P05.
func TestAMachineOfAnotherClusterIsLeftAlone(t *testing.T) {
	other, err := certs.NewCA("another", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	serveAnother := func(w *world, ip netip.Addr) {
		if err := w.at[ip].WriteFile(host.ClusterCAPath, strings.NewReader(string(other.Cert)), 0o644, 0,
			0); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("taken over", func(t *testing.T) {
		w := newWorld(t, control, nodeA)
		serveAnother(w, nodeA.IP)
		logged := w.logged()
		if _, err := w.apply(); err == nil ||
			!strings.Contains(err.Error(), "it serves a cluster, and there is no state of one in") {
			t.Errorf("got %v", err)
		}
		w.unchanged(logged)
	})
	t.Run("removed", func(t *testing.T) {
		w := newWorld(t, control, nodeA, nodeB)
		w.mustApply()
		serveAnother(w, nodeB.IP)
		logged := w.logged()
		w.declare(control, nodeA)
		p := w.mustApply()
		if h := w.at[nodeB.IP]; len(h.Log) != logged[nodeB.IP] {
			t.Errorf("it was changed: %v", h.Log[logged[nodeB.IP]:])
		}
		if got := actions(p)["machine.b"]; got != plan.Remove || !slices.Equal(w.live.gone, []string{"b"}) {
			t.Errorf("action %q, forgot %v", got, w.live.gone)
		}
	})
}
