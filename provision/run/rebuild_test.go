package run_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/state"
)

// rebuildState rebuilds the state from the machines.
func (w *world) rebuildState() (*state.State, []string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	return w.engine.Rebuild(ctx)
}

// servingPlane returns a control plane of three machines, of which one joined later, two nodes, a rotated key, and a
// removed machine.
func servingPlane(t *testing.T, form string) *world {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6",
		config.RoleControlPlane, config.RoleNode)
	w := newWorld(t, controlMachine)
	declare := func(list ...config.Machine) {
		w.declare(list...)
		w.engine.Config.ControlPlaneForm = form
		w.engine.Config.Encryption = config.Encryption{
			Provider:  "aesgcm",
			Key:       "one",
			Resources: []string{"configmaps", "secrets"},
		}
	}
	declare(controlMachine)
	w.mustApply()
	if form == config.FormStaticPods {
		return w
	}
	store := hostfake.NewEtcd("control")
	w.hosts["machine.control"].Store = store
	declare(controlMachine, second, third, machineA, machineB)
	for _, h := range w.hosts {
		h.Store = store
	}
	w.mustApply()
	w.clusterAPI.nodeStatus = map[string]string{"a": "True", "b": "True", "third": "True"}
	declare(controlMachine, second, third, machineA)
	w.mustApply()
	return w
}

// A lost state is rebuilt from the machines, and the next plan has nothing to do.
// Proves S10, P02.
func TestLostStatesAreRebuiltFromTheMachines(t *testing.T) {
	for _, form := range []string{config.FormSystemd, config.FormStaticPods} {
		t.Run(form, func(t *testing.T) {
			w := servingPlane(t, form)
			w.clusterAPI.objects = []state.Object{
				{
					APIVersion: "v1",
					Kind:       "ConfigMap",
					Namespace:  "x",
					Name:       "motd",
					Address:    "object.v1.ConfigMap.motd",
				},
			}
			old := w.savedState()
			old.Objects = w.clusterAPI.objects
			before := w.logLengths()
			updated, notes, err := w.rebuildState()
			if err != nil {
				t.Fatal(err)
			}
			w.checkUnchanged(before)
			for _, n := range notes {
				if !strings.HasPrefix(n, "keys that encrypted") && !strings.HasPrefix(n, "node b is in the cluster") {
					t.Errorf("note: %s", n)
				}
			}
			if updated.Revision != 42 {
				t.Errorf("a restore would begin its revisions above %d", updated.Revision)
			}
			for _, s := range []*state.State{old, updated} { // clear what cannot be the same
				s.Serial, s.Sealed, s.Keys.Encryption.Former, s.Keys.Secrets = 0, nil, nil, nil
				for address, m := range s.Machines {
					m.Machine.Source = config.Source{}
					if m.Issued == nil {
						m.Issued = map[string]certs.Revoked{}
					}
					s.Machines[address] = m
				}
				for i := range s.Revoked {
					s.Revoked[i] = certs.Revoked{CA: s.Revoked[i].CA, Serial: s.Revoked[i].Serial}
				}
			}
			for name, pair := range map[string][2]any{
				"authorities": {old.CAs, updated.CAs}, "keys": {old.Keys, updated.Keys},
				"members": {old.Etcd, updated.Etcd},
				"store":   {old.EtcdCluster + old.Token, updated.EtcdCluster + updated.Token},
				"fixed":   {old.Fixed, updated.Fixed}, "objects": {old.Objects, updated.Objects},
				"machines": {old.Machines, updated.Machines}, "revoked": {len(old.Revoked), len(updated.Revoked)},
			} {
				if a, b := marshalText(t, pair[0]), marshalText(t, pair[1]); a != b {
					t.Errorf("%s were\n%s\nand are\n%s", name, a, b)
				}
			}
			if form == config.FormStaticPods {
				return // the fake store does not cover static pods
			}
			if len(old.Revoked) == 0 {
				t.Error("nothing was revoked, so that nothing was tried")
			}
			if updated, _, err = w.rebuildState(); err != nil {
				t.Fatal(err)
			}
			if err := w.engine.Store.Write(updated); err != nil {
				t.Fatal(err)
			}
			if p := w.mustApply(); !p.IsEmpty() {
				t.Errorf("the next plan: %s\n%s", p.Summary(), marshalText(t, p.Machines))
			}
		})
	}
}

func marshalText(t *testing.T, v any) string {
	t.Helper()
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// No state is rebuilt from machines that disagree, because with a wrong state the right machines would count as
// foreign.
func TestStatesAreNotRebuiltFromMachinesThatDisagree(t *testing.T) {
	const key = "/etc/kubernetes/pki/sa.key"
	for name, c := range map[string]struct {
		spoil func(w *world)
		want  string
	}{
		"one is behind in a rotation": {func(w *world) {
			if err := w.hosts["machine.second"].WriteFile(key, strings.NewReader("another"), 0o600, 0, 0); err != nil {
				w.t.Fatal(err)
			}
		}, "the service accounts' key are not those of machine.control"},
		"one serves another cluster": {func(w *world) {
			other, err := certs.NewCA("kubernetes", 0, time.Now())
			if err != nil {
				w.t.Fatal(err)
			}
			if err := w.hosts["machine.a"].RemoveAll("/etc/kubernetes/pki/ca.crl"); err != nil {
				w.t.Fatal(err)
			}
			if err := w.hosts["machine.a"].WriteFile(host.ClusterCAPath, strings.NewReader(string(other.Cert)), 0o644,
				0, 0); err != nil {
				w.t.Fatal(err)
			}
		}, "machine.a (cluster.hcl:7): it serves another cluster than machine.control"},
		"one has another name": {func(w *world) {
			w.engine.Config.Machines[1].Name = "2"
		}, `it is "second" in the cluster, and is declared with the name "2": write name = "second"`},
		"one does not answer": {func(w *world) { w.unreachable["machine.a"] = context.DeadlineExceeded },
			"every declared " +
				"machine is asked"},
		"none has keys": {func(w *world) { w.engine.Config.Machines = w.engine.Config.Machines[3:] },
			"none of the declared machines has the keys of a cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			w := servingPlane(t, config.FormSystemd)
			c.spoil(w)
			if _, _, err := w.rebuildState(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// The state can also be rebuilt while authorities are being replaced. Trusted authorities stay trusted, and the
// replacement completes as before.
// Proves P05.
func TestStatesAreRebuiltDuringAReplacementOfAuthorities(t *testing.T) {
	w := servingPlane(t, config.FormSystemd)
	s := w.savedState()
	for name, own := range map[string]string{certs.ClusterCA: "kubernetes", certs.EtcdCA: "etcd-ca"} {
		next, err := certs.NewCA(own, 0, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Rotate(name, next, state.UntilFinished, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	key, public, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Rotate(state.ServiceAccount, certs.Pair{Cert: public, Key: key}, state.UntilFinished,
		time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := w.engine.Store.Write(s); err != nil {
		t.Fatal(err)
	}
	w.mustApply()
	before := w.savedState()
	after, notes, err := w.rebuildState()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(strings.Join(notes, "\n"), "was being replaced"); n != 3 {
		t.Errorf("notes %v", notes)
	}
	for name, r := range before.Rotations {
		if got := after.Rotations[name]; got.Phase != r.Phase || string(got.Peer) != string(r.Peer) ||
			string(got.Cross) != string(r.Cross) {
			t.Errorf("%s was\n%s\nand is\n%s", name, marshalText(t, r), marshalText(t, got))
		}
	}
	if a, b := marshalText(t, []any{before.CAs, before.Keys.CAs, before.Keys.ServiceAccount,
		before.Keys.ServicePublic}),
		marshalText(t, []any{after.CAs, after.Keys.CAs, after.Keys.ServiceAccount, after.Keys.ServicePublic}); a != b {
		t.Errorf("what signs was\n%s\nand is\n%s", a, b)
	}
	for name, r := range after.Rotations {
		r.IsFinishRequested = true
		after.Rotations[name] = r
	}
	if err := w.engine.Store.Write(after); err != nil {
		t.Fatal(err)
	}
	w.mustApply()
	if left := w.savedState().Rotations; len(left) > 0 {
		t.Errorf("not at its end: %s", marshalText(t, left))
	}
}
