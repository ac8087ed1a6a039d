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

// withAddress returns a machine with another block address.
func withAddress(m config.Machine, address string) config.Machine {
	m.Address = "machine." + address
	return m
}

// checkUnchanged fails the test if a machine was changed since its log had the given length.
func (w *world) checkUnchanged(logged map[netip.Addr]int) {
	w.t.Helper()
	for ip, h := range w.hostsByIP {
		if len(h.Log) != logged[ip] {
			w.t.Errorf("%s was changed: %v", ip, h.Log[logged[ip]:])
		}
	}
}

func (w *world) logLengths() map[netip.Addr]int {
	list := map[netip.Addr]int{}
	for ip, h := range w.hostsByIP {
		list[ip] = len(h.Log)
	}
	return list
}

// machineActions returns the actions of a plan by the machines' addresses.
func machineActions(p *plan.Plan) map[string]string {
	list := map[string]string{}
	for _, m := range p.Machines {
		list[m.Address] = m.Action
	}
	return list
}

// Renaming the block of a machine does not make it another machine.
// Proves P05.
func TestRenamedBlocksAreMovesThatChangeNothing(t *testing.T) {
	for name, renamed := range map[string][]config.Machine{
		"labels": {withAddress(controlMachine, "first"), withAddress(machineA, "worker"),
			withAddress(machineB, "other")},
		"exchanged": {controlMachine, withAddress(machineA, "b"), withAddress(machineB, "a")},
		"for_each":  {controlMachine, withAddress(machineA, `node["a"]`), withAddress(machineB, `node["b"]`)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, controlMachine, machineA, machineB)
			w.mustApply()
			logged := w.logLengths()
			w.declare(renamed...)
			p := w.mustApply()
			w.checkUnchanged(logged)
			for _, m := range renamed {
				want := plan.Move
				if m.Address == "machine."+m.Name {
					want = plan.None
				}
				if got := machineActions(p)[m.Address]; got != want {
					t.Errorf("%s: action %q, want %q", m.Address, got, want)
				}
			}
			if len(w.clusterAPI.missing)+len(w.clusterAPI.drained) > 0 {
				t.Errorf("forgot %v, drained %v", w.clusterAPI.missing, w.clusterAPI.drained)
			}
			if p := w.mustApply(); !p.IsEmpty() {
				t.Errorf("a second apply would do %v", machineActions(p))
			}
		})
	}
}

// If the first of several machines is removed from a list, the indexes of the others change, and only the first is
// removed.
// Proves P05.
func TestOnlyTheRemovedMachineIsRemoved(t *testing.T) {
	nodeC := machine("c", "10.0.0.4", config.RoleNode)
	w := newWorld(t, controlMachine, withAddress(machineA, "node[0]"), withAddress(machineB, "node[1]"),
		withAddress(nodeC, "node[2]"))
	w.mustApply()
	logged := w.logLengths()
	w.declare(controlMachine, withAddress(machineB, "node[0]"), withAddress(nodeC, "node[1]"))
	p := w.mustApply()
	if left := w.hostsByIP[machineA.IP].Files(); slices.ContainsFunc(left,
		func(path string) bool { return !strings.HasPrefix(path, "/proc/") }) {
		t.Errorf("the first was not cleaned: %v", left)
	}
	for _, ip := range []netip.Addr{machineB.IP, nodeC.IP} {
		if log := w.hostsByIP[ip].Log[logged[ip]:]; slices.ContainsFunc(log,
			func(line string) bool { return strings.Contains(line, "kubelet") }) {
			t.Errorf("the kubelet of %s was changed: %v", ip, log)
		}
	}
	from := map[string]string{}
	for _, m := range p.Machines {
		from[m.Address] = m.From
	}
	if got := machineActions(p); got["machine.node[0] (former)"] != plan.Remove ||
		from["machine.node[0]"] != "machine.node[1]" ||
		from["machine.node[1]"] != "machine.node[2]" {
		t.Errorf("the plan was %v, moved from %v", got, from)
	}
	if !slices.Equal(w.clusterAPI.missing, []string{"a"}) {
		t.Errorf("forgot %v", w.clusterAPI.missing)
	}
	if p := w.mustApply(); !p.IsEmpty() {
		t.Errorf("a second apply would do %v", machineActions(p))
	}
}

// A change that cannot be a move is refused before any change, with the text to write instead.
// Proves P05.
func TestAmbiguousIdentitiesAreRefused(t *testing.T) {
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
		"its name is another":           {[]config.Machine{controlMachine, machineA, named(machineB, "x")}, "", []string{"machine.b", `name = "b"`, "cluster.hcl:7"}},
		"its block and name are others": {[]config.Machine{controlMachine, machineA, named(withAddress(machineB, "x"), "x")}, "", []string{"machine.x", "was applied as machine.b", `name = "b"`}},
		"another machine in its block": {[]config.Machine{controlMachine, machineA, at(machineB, "10.0.0.9")}, "",
			[]string{"machine.b", "10.0.0.3", "is another", "block of its own"}},
		"a control plane's address": {[]config.Machine{at(controlMachine, "10.0.9.1"), machineA, machineB}, "10.0.0.1",
			[]string{"machine.control", "its address was 10.0.0.1"}},
		"it has a second address": {[]config.Machine{controlMachine, machineA,
			at(named(withAddress(machineB, "x"), "x"), second)}, "10.0.0.3", []string{"machine.b", "same machine as " +
			"machine.x", "it would be cleaned"}},
		"its name in a block of another one's": {[]config.Machine{controlMachine, machineA,
			at(withAddress(machineB, "x"), "10.0.0.9")},
			"", []string{"machine.x", "is another"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, controlMachine, machineA, machineB)
			w.mustApply()
			w.declare(test.declared...)
			if test.also != "" {
				before := w.hostsByIP[netip.MustParseAddr(test.also)]
				for _, m := range test.declared {
					if strings.HasPrefix(m.IP.String(), "10.0.9.") {
						before.Machine.Addresses = []string{test.also, m.IP.String()}
						w.hostsByIP[m.IP] = before
					}
				}
			}
			logged := w.logLengths()
			_, err := w.apply()
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
			w.checkUnchanged(logged)
		})
	}
}

// A node can change its address and remains the same machine.
// Proves P05.
func TestNodesMayChangeTheirAddress(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	moved := machineB
	moved.IP = netip.MustParseAddr("10.0.9.3")
	h := w.hostsByIP[machineB.IP]
	h.Machine.Addresses = []string{"10.0.9.3"}
	w.hostsByIP[moved.IP] = h
	w.declare(controlMachine, machineA, moved)
	p := w.mustApply()
	if got := machineActions(p)["machine.b"]; got != plan.Change {
		t.Errorf("action %q", got)
	}
	if len(w.clusterAPI.missing) > 0 {
		t.Errorf("forgot %v", w.clusterAPI.missing)
	}
	if p := w.mustApply(); !p.IsEmpty() {
		t.Errorf("a second apply would do %v", machineActions(p))
	}
}

// An object whose block is renamed is not removed, even if only its former block is selected.
// Proves P05.
func TestRenamedObjectsAreNotRemoved(t *testing.T) {
	object := state.Object{
		APIVersion: "apps/v1",
		Kind:       "Deployment",
		Namespace:  "default",
		Name:       "web",
		Address:    "workload.web",
	}
	w := newWorld(t, controlMachine)
	w.clusterAPI.objects = []state.Object{object}
	w.mustApply()
	renamed := object
	renamed.Address = "workload.site"
	w.clusterAPI.objects = []state.Object{renamed}
	w.engine.Targets = []string{"workload.web"}
	w.clusterAPI.previousObjects = nil
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Plan.IsPending = true // makes the run compare objects again
	if err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, before := range w.clusterAPI.previousObjects {
		if slices.Contains(before, object) {
			t.Error("it is taken for an undeclared machine")
		}
	}
	if len(w.clusterAPI.previousObjects) == 0 {
		t.Error("nothing was applied")
	}
}

// A machine that was removed while it was unreachable still has certificates that were revoked. It gets new ones when
// it returns.
// Proves P03.
func TestReturningMachinesGetValidCertificates(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.mustApply()
	w.unreachable["machine.b"] = errors.New("no route to host")
	w.declare(controlMachine, machineA)
	w.mustApply()
	delete(w.unreachable, "machine.b")
	const path = "/etc/kubernetes/pki/kubelet.crt"
	before, err := w.hostsByIP[machineB.IP].ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.declare(controlMachine, machineA, machineB)
	p := w.mustApply()
	after, err := w.hostsByIP[machineB.IP].ReadFile(path)
	if err != nil || string(after) == string(before) {
		t.Errorf("it has the certificate that was revoked, %v", err)
	}
	count := 0
	for _, m := range p.Machines {
		for _, c := range m.Changes {
			if c.Note == "was revoked" && m.Address == "machine.b" {
				count++
			}
		}
	}
	if count == 0 {
		t.Errorf("the plan does not say why: %+v", p.Machines)
	}
	if p := w.mustApply(); !p.IsEmpty() {
		t.Errorf("a second apply would do %v", machineActions(p))
	}
}

// A machine that was reinstalled under its name is a new machine to the cluster. The former Node is deleted before the
// kubelet starts. Otherwise the kubelet would continue with it, with the provider ID that a Node keeps and with pods
// that no longer exist. The new Node gets its labels when it exists.
// Proves S22.
func TestReinstalledMachinesGetNewNodes(t *testing.T) {
	both := machine("second", "10.0.0.5", config.RoleControlPlane, config.RoleNode)
	for name, m := range map[string]config.Machine{"a node": machineA, "one of the control plane": both} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, controlMachine, both, machineA, machineB)
			w.mustApply()
			before := w.clusterAPI.inventories[len(w.clusterAPI.inventories)-1]
			w.clusterAPI.nodeStatus = map[string]string{"second": "True", "a": "True", "b": "True"}
			w.clusterAPI.providerIDs = map[string]string{
				"second": before["second"].ProviderID,
				"a":      before["a"].ProviderID,
				"b":      before["b"].ProviderID,
			}
			fresh := &hostfake.Host{Machine: w.hostsByIP[m.IP].Machine, OnStart: func(unit string) {
				if w.clusterAPI.providerIDs[m.Name] != "" && unit == "kubelet.service" {
					t.Error("the kubelet started as the former machine's node")
				}
				if slices.Contains(w.clusterAPI.machines(), m.Name) {
					t.Errorf("the node was labelled before its %s started", unit)
				}
			}}
			fresh.Machine.Identity = "of a new installation"
			w.hostsByIP[m.IP], w.hosts[m.Address] = fresh, fresh
			w.clusterAPI.labelled, w.clusterAPI.operations = nil, nil
			fresh.StartErrors = map[string]error{"kubelet.service": errors.New("exit 1")}
			if _, err := w.apply(); err == nil || slices.Contains(w.clusterAPI.machines(), m.Name) {
				t.Errorf("the kubelet does not start, and the node was labelled, which makes one: %v", err)
			}
			again := &hostfake.Host{Machine: fresh.Machine, OnStart: fresh.OnStart} // reinstalled again
			again.Machine.Identity = "of the next installation"
			fresh, w.hostsByIP[m.IP], w.hosts[m.Address] = again, again, again
			w.clusterAPI.providerIDs[m.Name], w.clusterAPI.labelled,
				w.clusterAPI.operations = before[m.Name].ProviderID,
				nil, nil
			if note := plannedMachine(w.mustApply(), m.Address).Note; !strings.Contains(note,
				"it was reinstalled: the Node of the former machine is deleted, with its pods") {
				t.Errorf("the plan says %q", note)
			}
			if want := []string{"forget former " + m.Name}; !slices.Equal(w.clusterAPI.operations, want) {
				t.Errorf("done to nodes was %v, want %v", w.clusterAPI.operations, want)
			}
			if !slices.Contains(w.clusterAPI.machines(), m.Name) {
				t.Errorf("labelled are %v", w.clusterAPI.machines())
			}
			fresh.OnStart = nil
			w.clusterAPI.providerIDs[m.Name], w.clusterAPI.operations = before[m.Name].ProviderID, nil
			w.editFile(m.Address, kubeletFile)
			w.mustApply()
			if slices.Contains(w.clusterAPI.operations, "forget former "+m.Name) {
				t.Error("the Node of a machine that works was taken away")
			}
		})
	}
}

// A machine that belongs to another cluster is neither taken over nor cleaned.
// Proves P05.
func TestMachinesOfOtherClustersAreNotChanged(t *testing.T) {
	other, err := certs.NewCA("another", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	serveAnother := func(w *world, ip netip.Addr) {
		if err := w.hostsByIP[ip].WriteFile(host.ClusterCAPath, strings.NewReader(string(other.Cert)), 0o644, 0,
			0); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("taken over", func(t *testing.T) {
		w := newWorld(t, controlMachine, machineA)
		serveAnother(w, machineA.IP)
		logged := w.logLengths()
		if _, err := w.apply(); err == nil ||
			!strings.Contains(err.Error(), "it serves a cluster, and there is no state of one in") {
			t.Errorf("got %v", err)
		}
		w.checkUnchanged(logged)
	})
	t.Run("removed", func(t *testing.T) {
		w := newWorld(t, controlMachine, machineA, machineB)
		w.mustApply()
		serveAnother(w, machineB.IP)
		logged := w.logLengths()
		w.declare(controlMachine, machineA)
		p := w.mustApply()
		if h := w.hostsByIP[machineB.IP]; len(h.Log) != logged[machineB.IP] {
			t.Errorf("it was changed: %v", h.Log[logged[machineB.IP]:])
		}
		if got := machineActions(p)["machine.b"]; got != plan.Remove ||
			!slices.Equal(w.clusterAPI.missing, []string{"b"}) {
			t.Errorf("action %q, forgot %v", got, w.clusterAPI.missing)
		}
	})
}
