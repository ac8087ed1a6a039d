package run_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/report"
	"clusterctl/provision/state"
	"clusterctl/tests/tools/amount"
)

var planeAddresses = map[string]string{"a": "10.0.0.11", "b": "10.0.0.12", "c": "10.0.0.13"}

// newDemotable returns a control plane of a, b and c. The returned function changes the declaration: the named machines
// stay in the control plane, and the others become nodes.
func newDemotable(t *testing.T) (*world, *hostfake.Etcd, func(control string)) {
	w, store, _ := newPlane(t, "a", "b", "c")
	w.clusterAPI.nodeStatus = map[string]string{}
	w.mustApply()
	return w, store, func(control string) {
		var list []config.Machine
		for _, name := range []string{"a", "b", "c"} {
			r := config.RoleNode
			if strings.Contains(control, name) {
				r = config.RoleControlPlane
			}
			list = append(list, machine(name, planeAddresses[name], r))
		}
		w.declare(list...)
	}
}

// controlFiles returns the control-plane files that a machine has.
func controlFiles(h *hostfake.Host) (found []string) {
	for _, path := range []string{"pki/ca.key", "pki/etcd/ca.key", "pki/etcd/peer.key", "pki/sa.key",
		"pki/front-proxy-ca.key", "pki/encryption.yaml",
		"pki/apiserver.key", "pki/apiserver-etcd-client.key", "admin.conf", "super-admin.conf",
		"controller-manager.conf"} {
		if _, err := h.Stat("/etc/kubernetes/" + path); !errors.Is(err, fs.ErrNotExist) {
			found = append(found, path)
		}
	}
	return found
}

func TestDemotedMachinesLeaveTheStoreAndKeepNoKeys(t *testing.T) {
	for _, control := range []string{"ab", "a", "b"} {
		t.Run(control, func(t *testing.T) {
			w, store, declare := newDemotable(t)
			if found := controlFiles(w.hosts["machine.c"]); len(found) < 10 {
				t.Fatalf("a machine of the control plane has only %v", found)
			}
			issued := w.state().Machines["machine.c"].Issued
			declare(control)
			checkDemotionPlan(t, w)
			removed := len(planeAddresses) - len(control)
			members := []int{}
			for name, h := range w.hosts {
				h.BeforeChange = func(what string) error {
					if what == "stop etcd.service" { // before its data is deleted
						got, _ := store.Members(context.Background()) // the store is in memory
						members = append(members, len(got))
						if slices.ContainsFunc(got, func(m host.Member) bool { return "machine."+m.Name == name }) {
							return fmt.Errorf("%s is stopped while it is a member", name)
						}
					}
					return nil
				}
			}
			w.mustApply()
			if want := []int{2, 1}[:removed]; !slices.Equal(members, want) {
				t.Errorf("members were stopped when the store had %v, want %v", members, want)
			}
			if names := voters(t, store); strings.Join(names, "") != control {
				t.Errorf("the members are %v, want %s", names, control)
			}
			for name := range planeAddresses {
				if found := controlFiles(w.hosts["machine."+name]); !strings.Contains(control, name) && len(found) > 0 {
					t.Errorf("%s has %v still", name, found)
				}
			}
			s := w.state()
			for label, r := range issued {
				_, still := s.Machines["machine.c"].Issued[label] // it may have been renewed
				revoked := slices.ContainsFunc(s.Revoked,
					func(got certs.Revoked) bool { return got.Serial == r.Serial })
				if still == revoked {
					t.Errorf("%s: still there %v, revoked %v", label, still, revoked)
				}
			}
			for name, h := range w.hosts {
				list, err := h.ReadFile("/etc/kubernetes/pki/ca.crl")
				if err != nil {
					t.Fatal(err)
				}
				in, err := certs.ParseRevocations(list, s.CAs[certs.ClusterCA])
				if r := issued["kubeconfig /etc/kubernetes/super-admin.conf"]; err != nil || !in[r.Serial] {
					t.Errorf("%s does not refuse c's super-admin.conf: %v", name, err)
				}
			}
			again := w.mustApply()
			if !again.IsEmpty() {
				t.Errorf("a second apply would do %v", machineActions(again))
			}
			if !strings.Contains(strings.Join(again.WaitingChanges, "\n"),
				"clusterctl certs rotate cluster-ca etcd-ca front-proxy-ca service-account") {
				t.Errorf("the plan does not report keys that are due for replacement: %q", again.WaitingChanges)
			}
		})
	}
}

// checkDemotionPlan checks what a plan says of the machine c, which leaves the control plane.
func checkDemotionPlan(t *testing.T, w *world) {
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := &strings.Builder{}
	if err := p.Plan.Print(text, plan.Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"- etcd      c  remove the member", "- file      " +
		"/etc/kubernetes/pki/ca.key", "- file      /etc/kubernetes/super-admin.conf",
		"super-admin.conf  revoke", "A snapshot of the store is taken before the removal of ",
		"leaves the control plane"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, text)
		}
	}
	p.Close()
}

// A machine that an earlier release demoted still has the keys, and its member still counts.
func TestLeftoversOfAnEarlierDemotionAreRemovedAndReported(t *testing.T) {
	w, store, declare := newDemotable(t)
	declare("ab")
	s := w.state()
	recorded := s.Machines["machine.c"]
	recorded.Machine.Roles = []string{config.RoleNode}
	s.Machines["machine.c"] = recorded
	delete(s.Etcd, "c")
	if err := w.engine.Store.Write(s); err != nil {
		t.Fatal(err)
	}
	p := w.mustApply()
	if notes := strings.Join(p.WaitingChanges, "\n"); !strings.Contains(notes, "etcd has the member c (3) at "+
		"https://") {
		t.Errorf("the plan does not report the member of c: %q", notes)
	}
	if found := controlFiles(w.hosts["machine.c"]); len(found) > 0 {
		t.Errorf("c has %v still", found)
	}
	if names := voters(t, store); len(names) != 3 {
		t.Errorf("the members are %v", names)
	}
	o, err := w.engine.Status(t.Context())
	if err != nil || !strings.Contains(o.Members, "etcd has the member c") {
		t.Errorf("status says %q, %v", o.Members, err)
	}
	if text := describeMembership(t, w); !strings.Contains(text, "etcd has the member c (3)") {
		t.Errorf("etcd status says %q of the member without a machine", text)
	}
	if err := store.Remove(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if text := describeMembership(t, w); text != "" {
		t.Errorf("etcd status says %q although the members are exact", text)
	}
	if err := store.Remove(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if o, err = w.engine.Status(t.Context()); err != nil || !strings.Contains(o.Members, "etcd has no member b") {
		t.Errorf("status says %q, %v", o.Members, err)
	}
}

// describeMembership returns what etcd status says of the list of members.
func describeMembership(t *testing.T, w *world) string {
	t.Helper()
	a, err := w.engine.OpenStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	return a.DescribeMembership(t.Context())
}

func TestInterruptedDemotionsContinueWithTheNextApply(t *testing.T) {
	for at := 1; ; at += amount.Scaled(7, 28) {
		w, store, declare := newDemotable(t)
		declare("a")
		ctx, cancel := context.WithCancel(t.Context())
		var events atomic.Int64
		w.engine.Report = func(e report.Event) {
			if events.Add(1) == int64(at) {
				cancel()
			}
		}
		p, err := w.engine.Prepare(ctx)
		if err == nil {
			err = p.Apply(ctx)
			p.Close()
		}
		cancel()
		w.engine.Report = nil
		if err == nil {
			return
		}
		w.mustApply()
		if names := voters(t, store); len(names) != 1 {
			t.Errorf("cut off at event %d: the members are %v", at, names)
		}
		for _, name := range []string{"b", "c"} {
			if found := controlFiles(w.hosts["machine."+name]); len(found) > 0 {
				t.Errorf("cut off at event %d: %s has %v still", at, name, found)
			}
		}
		if again := w.mustApply(); !again.IsEmpty() {
			t.Errorf("cut off at event %d: a further apply would do %v", at, machineActions(again))
		}
	}
}

func TestDemotionsKeepTheMajority(t *testing.T) {
	ill := plan.Health{Name: "b", HasMember: true, Etcd: "no answer", API: "no answer"}
	well := plan.Health{Name: "a", HasMember: true}
	for _, c := range []struct {
		list []plan.Health
		want string
	}{
		{[]plan.Health{well}, ""},
		{[]plan.Health{well, {Name: "b", HasMember: true}}, ""},
		{[]plan.Health{well, ill}, "no majority"},
		{[]plan.Health{well, {Name: "b", HasMember: true}, ill}, ""},
		{[]plan.Health{ill}, "no majority"},
		{[]plan.Health{{Name: "a", HasMember: true, API: "no answer"}}, "no API server"},
	} {
		err := plan.CheckLeave("c", c.list)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.list, err, c.want)
		}
	}
}

// A machine is neither demoted nor removed while the rest of the control plane would not work without it. Its API
// server keeps running. The rest was changed by an earlier run, so that its health was not checked for its own change.
func TestMachinesStayWhileTheControlPlaneNeedsThem(t *testing.T) {
	for name, roles := range map[string][]string{"demoted": {config.RoleNode}, "removed": nil} {
		t.Run(name, func(t *testing.T) {
			w, store, _ := newDemotable(t)
			list := []config.Machine{machine("a", planeAddresses["a"], config.RoleControlPlane),
				machine("b", planeAddresses["b"], config.RoleControlPlane)}
			if roles != nil {
				list = append(list, machine("c", planeAddresses["c"], roles...))
			}
			w.declare(list...)
			// applyUntil applies until an event whose message begins with the given text.
			applyUntil := func(text string) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w.engine.Report = func(e report.Event) {
					if strings.HasPrefix(e.Message, text) {
						cancel()
					}
				}
				p, err := w.engine.Prepare(ctx)
				if err == nil {
					err = p.Apply(ctx)
					p.Close()
				}
				if err == nil || ctx.Err() == nil {
					t.Errorf("there was no event %q: %v", text, err)
				}
				w.engine.Report = nil
			}
			applyUntil(map[string]string{"demoted": "leaving the control plane", "removed": "removing"}[name])
			for _, h := range w.hosts {
				h.FailPeers(map[string]error{
					"https://" + planeAddresses["b"] + ":2379":        errors.New("no answer"),
					"https://" + planeAddresses["b"] + ":6443/readyz": errors.New("no answer"),
				})
			}
			logged := len(w.hosts["machine.c"].Operations())
			applyUntil("waiting for b, which may be just back") // and does not come back
			if did := strings.Join(w.hosts["machine.c"].Operations()[logged:], ", "); strings.Contains(did, "stop") ||
				len(voters(t, store)) != 3 {
				t.Errorf("on c it did %s, the members are %v", did, voters(t, store))
			}
			for _, h := range w.hosts {
				h.HealPeers()
			}
			w.mustApply()
			if names := voters(t, store); strings.Join(names, "") != "ab" {
				t.Errorf("the members are %v", names)
			}
		})
	}
}

// A configuration by which no machine of the control plane stays in it is rejected before anything changes.
func TestTheWholeControlPlaneIsNotReplacedAtOnce(t *testing.T) {
	w, store, _ := newDemotable(t)
	node := machine("d", "10.0.0.14", config.RoleNode)
	list := []config.Machine{node}
	for name, ip := range planeAddresses {
		list = append(list, machine(name, ip, config.RoleControlPlane))
	}
	w.declare(list...)
	w.mustApply()
	node.Roles = []string{config.RoleControlPlane}
	for name, declared := range map[string][]config.Machine{
		"demoted": {node, machine("a", planeAddresses["a"], config.RoleNode),
			machine("b", planeAddresses["b"], config.RoleNode), machine("c", planeAddresses["c"], config.RoleNode)},
		"removed": {node},
		"none":    {machine("d", "10.0.0.14", config.RoleNode)},
	} {
		w.declare(declared...)
		logged := len(w.hosts["machine.d"].Log)
		want := "none of its present machines (machine.a, machine.b, machine.c) stays in it"
		if name == "none" {
			want = "leave one of machine.a, machine.b, machine.c in it"
		}
		if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if did := w.hosts["machine.d"].Log[logged:]; len(did) > 0 || len(voters(t, store)) != 3 {
			t.Errorf("%s: on d it did %v, the members are %v", name, did, voters(t, store))
		}
	}
}

func TestExposedKeysAreDueUntilTheyAreReplaced(t *testing.T) {
	now := time.Now()
	s, err := state.New("home", func() (map[string]certs.Pair, error) {
		all := map[string]certs.Pair{}
		for name, common := range certs.CommonNames {
			pair, err := certs.NewCA(common, 0, now)
			if err != nil {
				return nil, err
			}
			all[name] = pair
		}
		return all, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Keys.Encryption = state.Encryption{
		Keys: []state.EncryptionKey{{Provider: "secretbox", Name: "k1", Secret: []byte("x")}},
	}
	s.RecordExposure("machine.c", now)
	s.RecordExposure("machine.d", now)
	if due := s.DueKeys(); len(due) != 5 {
		t.Fatalf("due are %+v", due)
	}
	next, err := certs.NewCA("kubernetes", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Rotate(certs.ClusterCA, next, 0, now); err != nil {
		t.Fatal(err)
	}
	s.StartIssuing(certs.ClusterCA, now)
	if due := s.DueKeys(); len(due) != 5 {
		t.Errorf("while the former authority is trusted, due are %+v", due)
	}
	s.DropFormer(certs.ClusterCA)
	s.Keys.Encryption.Keys[0].Name = "k2"
	if due := s.DueKeys(); len(due) != 3 {
		t.Errorf("after the replacement of two, due are %+v", due)
	}
	if text := strings.Join(certificate.DueKeys(s), "\n"); !strings.Contains(text,
		"certs rotate etcd-ca front-proxy-ca service-account") ||
		strings.Contains(text, "secretbox") {
		t.Errorf("it says %q", text)
	}
}
