package run_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"clusterctl/hcl/config"

	"clusterctl/provision/host/hostfake"
)

// plane is machines of the control plane that share a store.
func plane(t *testing.T, names ...string) (*world, *hostfake.Etcd, func(names ...string)) {
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
		for _, h := range w.at {
			h.Store = store
		}
	}
	declare(names...)
	return w, store, declare
}

func voters(t interface{ Errorf(string, ...any) }, store *hostfake.Etcd) (names []string) {
	members, _ := store.Members(context.Background()) // it is in memory
	for _, m := range members {
		if m.Learner || m.Name == "" {
			t.Errorf("%+v has no vote", m)
		}
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// S10: the control plane grows and shrinks in any order of names, and each that joins begins beside the members that there are then.
func TestTheControlPlaneGrowsInAnyOrderOfNames(t *testing.T) {
	for _, sizes := range [][]int{{1, 3}, {2, 3, 1}, {3, 5, 2}, {4, 5, 1, 2}} {
		for _, order := range []string{"abcde", "edcba", "cadbe"} {
			names := strings.Split(order, "")
			w, store, declare := plane(t, names[:sizes[0]]...)
			w.mustApply()
			for _, size := range sizes[1:] {
				declared := slices.Clone(names[:size])
				slices.Reverse(declared) // new ones first
				declare(declared...)
				w.mustApply()
				have := voters(t, store)
				if least := config.EtcdMembers(size); len(have) < least || len(have) > size {
					t.Errorf("%v of %s: %d machines have the members %v", sizes, order, size, have)
				}
				for _, n := range have {
					if !slices.Contains(declared, n) {
						t.Errorf("%v of %s: %s has a member, and is not declared", sizes, order, n)
					}
				}
			}
			if p := w.mustApply(); !p.Empty() {
				t.Errorf("%v of %s: a second apply would do %v", sizes, order, actions(p))
			}
		}
	}
}

// S10: a replica that works is not dropped for the sake of an odd number, unless the configuration says how many there are.
func TestAHealthyMemberStays(t *testing.T) {
	for _, said := range []bool{false, true} {
		w, store, declare := plane(t, "a", "b", "c")
		w.mustApply()
		declare("a", "b")
		w.engine.Config.Etcd.Said = said // members = 1
		w.mustApply()
		if names := voters(t, store); (len(names) == 1) != said {
			t.Errorf("said %v: the members are %v", said, names)
		}
	}
}

// S10: what runs that were cut off and starts that failed have left keeps no machine from joining.
func TestWhatAnEarlierJoinHasLeftIsInNobodysWay(t *testing.T) {
	for name, leave := range map[string]func(*world, *hostfake.Etcd) error{
		"an unnamed learner of its own":    func(_ *world, e *hostfake.Etcd) error { return e.AddLearner(t.Context(), "https://10.0.0.12:2380") },
		"an unnamed learner of another":    func(_ *world, e *hostfake.Etcd) error { return e.AddLearner(t.Context(), "https://10.0.0.13:2380") },
		"a machine's that is not declared": func(_ *world, e *hostfake.Etcd) error { return e.AddLearner(t.Context(), "https://10.0.0.99:2380") },
		"the directory of a start that failed": func(w *world, _ *hostfake.Etcd) error {
			return w.hosts["machine.b"].WriteFile("/var/lib/etcd/member/snap/db", strings.NewReader("x"), 0o600, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, store, declare := plane(t, "a")
			w.mustApply()
			declare("a", "b", "c")
			if err := leave(w, store); err != nil {
				t.Fatal(err)
			}
			w.mustApply()
			if names := voters(t, store); !slices.Equal(names, []string{"a", "b", "c"}) {
				t.Errorf("the members are %v", names)
			}
			if p := w.mustApply(); !p.Empty() {
				t.Errorf("a second apply would do %v", actions(p))
			}
		})
	}
}
