package run_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/step"
	"clusterctl/tests/tools/amount"
)

// newPlane returns control-plane machines that share an etcd cluster.
func newPlane(t *testing.T, names ...string) (*world, *hostfake.Etcd, func(names ...string)) {
	t.Helper()
	ips := map[string]string{"a": "10.0.0.11", "b": "10.0.0.12", "c": "10.0.0.13", "d": "10.0.0.14", "e": "10.0.0.15"}
	of := func(names []string) (list []config.Machine) {
		for _, n := range names {
			list = append(list, machine(n, ips[n], config.RoleControlPlane))
		}
		return list
	}
	w := newWorld(t, of(names)...)
	store := hostfake.NewEtcd(names[:config.EtcdMembers(len(names))]...)
	declare := func(names ...string) {
		w.declare(of(names)...)
		for _, h := range w.hostsByIP {
			h.Store = store
		}
	}
	declare(names...)
	return w, store, declare
}

func voters(t interface{ Errorf(string, ...any) }, store *hostfake.Etcd) (names []string) {
	members, _ := store.Members(context.Background()) // the store is in memory
	for _, m := range members {
		if m.Learner || m.Name == "" {
			t.Errorf("%+v has no vote", m)
		}
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// The control plane can grow and shrink with any order of names. Each joining machine begins with the members of that
// time.
// Proves S10.
func TestTheControlPlaneGrowsInAnyOrderOfNames(t *testing.T) {
	orders := []string{"cadbe", "abcde", "edcba"}
	for _, sizes := range [][]int{{1, 3}, {2, 3, 1}, {3, 5, 2}, {4, 5, 1, 2}} {
		for _, order := range orders[:amount.Scaled(len(orders), 1)] {
			names := strings.Split(order, "")
			w, store, declare := newPlane(t, names[:sizes[0]]...)
			w.mustApply()
			for _, size := range sizes[1:] {
				declared := slices.Clone(names[:size])
				slices.Reverse(declared) // new machines first
				declare(declared...)
				w.mustApply()
				got := voters(t, store)
				if minimum := config.EtcdMembers(size); len(got) < minimum || len(got) > size {
					t.Errorf("%v of %s: %d machines have the members %v", sizes, order, size, got)
				}
				for _, n := range got {
					if !slices.Contains(declared, n) {
						t.Errorf("%v of %s: %s has a member, and is not declared", sizes, order, n)
					}
				}
			}
			if p := w.mustApply(); !p.IsEmpty() {
				t.Errorf("%v of %s: a second apply would do %v", sizes, order, machineActions(p))
			}
		}
	}
}

// A healthy member is not removed only to get an odd number of members, unless the configuration sets the number.
// Proves S10.
func TestHealthyMembersStay(t *testing.T) {
	for _, said := range []bool{false, true} {
		w, store, declare := newPlane(t, "a", "b", "c")
		w.mustApply()
		declare("a", "b")
		w.engine.Config.Etcd.MembersSet = said // members = 1
		w.mustApply()
		if names := voters(t, store); (len(names) == 1) != said {
			t.Errorf("said %v: the members are %v", said, names)
		}
	}
}

// Remains of interrupted runs and failed starts do not keep a machine from joining.
// Proves S10.
func TestLeftoversOfAnEarlierJoinDoNotBlockANewOne(t *testing.T) {
	for name, leave := range map[string]func(*world, *hostfake.Etcd) error{
		"an unnamed learner of its own": func(_ *world,
			e *hostfake.Etcd) error {
			return e.AddLearner(t.Context(), "https://10.0.0.12:2380")
		},
		"an unnamed learner of another": func(_ *world,
			e *hostfake.Etcd) error {
			return e.AddLearner(t.Context(), "https://10.0.0.13:2380")
		},
		"a machine's that is not declared": func(_ *world,
			e *hostfake.Etcd) error {
			return e.AddLearner(t.Context(), "https://10.0.0.99:2380")
		},
		"the directory of a start that failed": func(w *world, _ *hostfake.Etcd) error {
			return w.hosts["machine.b"].WriteFile("/var/lib/etcd/member/snap/db", strings.NewReader("x"), 0o600, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, store, declare := newPlane(t, "a")
			w.mustApply()
			declare("a", "b", "c")
			if err := leave(w, store); err != nil {
				t.Fatal(err)
			}
			w.mustApply()
			if names := voters(t, store); !slices.Equal(names, []string{"a", "b", "c"}) {
				t.Errorf("the members are %v", names)
			}
			if p := w.mustApply(); !p.IsEmpty() {
				t.Errorf("a second apply would do %v", machineActions(p))
			}
		})
	}
}

// A member that lost its disk joins again, and does not begin a new etcd cluster.
// Proves P07.
func TestMembersThatLostTheirDataRejoin(t *testing.T) {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6",
		config.RoleControlPlane)
	w := newWorld(t, controlMachine, second, third)
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

// A machine that was unreachable when it was removed returns with its member's data. The data belongs to this cluster,
// so the machine is cleaned and joins. A machine with another cluster's data is refused.
// Proves P07.
func TestFormerMembersCanReturn(t *testing.T) {
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

	delete(w.unreachable, "machine.control")
	h := w.hosts["machine.control"]
	if err := h.Stop(t.Context(), "etcd.service"); err != nil { // etcd does not accept the removed member
		t.Fatal(err)
	}
	w.declare(controlMachine, second, third)
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
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}

	fourth, fifth := machine("fourth", "10.0.0.7", config.RoleControlPlane), machine("fifth", "10.0.0.8",
		config.RoleControlPlane)
	w.declare(controlMachine, second, third, fourth, fifth)
	foreign := host.AppendEtcdData(nil, host.EtcdData{Cluster: 0xbad, Member: 1})
	if err := w.hosts["machine.fourth"].WriteFile("/var/lib/etcd/member/wal/0.wal", bytes.NewReader(foreign), 0o600, 0,
		0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "machine.fourth") ||
		!strings.Contains(err.Error(), "another cluster") {
		t.Errorf("error %v does not refuse another cluster's data", err)
	}
}

func TestLosingTheDataOfTheOnlyMemberIsRefused(t *testing.T) {
	w := newWorld(t, controlMachine)
	w.mustApply()
	if err := w.hosts["machine.control"].RemoveAll("/var/lib/etcd"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "snapshot") {
		t.Errorf("error %v does not say what to do", err)
	}
}
