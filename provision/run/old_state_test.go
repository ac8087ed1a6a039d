package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/state"
)

// An apply with an old copy of the state reverts nothing that the cluster received since: the encryption key of values
// in etcd, the keys that sign tokens and certificates, and revocations.
// Proves S10, P04.
func TestOldStatesCannotUndoLaterChanges(t *testing.T) {
	key := func(name string) config.Encryption {
		return config.Encryption{Provider: "secretbox", Key: name, Resources: []string{"secrets"}}
	}
	for name, test := range map[string]struct {
		file string
		do   func(w *trusting)
	}{
		"a key of the store": {encryptionFile, func(w *trusting) {
			w.encrypt(key("two"))
			w.mustApply()
		}},
		"the key of service accounts": {pkiDir + "sa.key", func(w *trusting) {
			w.changeState(func(s *state.State) {
				private, public, err := certs.NewKey()
				if err == nil {
					err = s.Rotate(state.ServiceAccount, certs.Pair{Cert: public, Key: private}, 0, time.Now())
				}
				if err != nil {
					t.Fatal(err)
				}
			})
			w.mustApply()
		}},
		"the store's authority": {pkiDir + "etcd/ca.crt", func(w *trusting) {
			w.changeState(func(s *state.State) {
				next, err := certs.NewCA("etcd", 0, time.Now())
				if err == nil {
					err = s.Rotate(certs.EtcdCA, next, 0, time.Now())
				}
				if err != nil {
					t.Fatal(err)
				}
			})
			w.mustApply()
		}},
		"a revoked certificate": {pkiDir + "ca.crl", func(w *trusting) {
			w.changeState(func(s *state.State) {
				s.Revoke(certs.Revoked{CA: certs.ClusterCA, Serial: "4711", At: time.Now(),
					Until: time.Now().Add(time.Hour)})
			})
			w.mustApply()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTrusting(t)
			w.encrypt(key("one"))
			w.mustApply()
			path := filepath.Join(w.engine.Store.Dir, "state.json")
			old, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			test.do(w)
			given, err := w.hosts["machine.control"].ReadFile(test.file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, old, 0o600); err != nil {
				t.Fatal(err)
			}
			logged := w.logLengths()
			_, err = w.apply()
			if err == nil || !strings.Contains(err.Error(), "older than the cluster") {
				t.Errorf("the apply says %v", err)
			}
			w.checkUnchanged(logged)
			now, err := w.hosts["machine.control"].ReadFile(test.file)
			if err != nil || string(now) != string(given) {
				t.Errorf("%s was taken back", test.file)
			}
		})
	}
}

// A restore with a state that is older than the cluster stops before it deletes anything.
// Proves P07.
func TestOldStatesCannotRestoreTheStore(t *testing.T) {
	w := newThreeWorld(t)
	w.addFormerKey()
	path := filepath.Join(w.engine.Store.Dir, "state.json")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := w.state()
	private, public, err := certs.NewKey()
	if err == nil {
		err = s.Rotate(state.ServiceAccount, certs.Pair{Cert: public, Key: private}, 0, time.Now())
	}
	if err == nil {
		err = w.engine.Store.Write(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.mustApply()
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	logged := w.logLengths()
	checkRefused(t, w.restore(etcd.Restore{AllowsLoss: true}), "older than the cluster")
	w.checkUnchanged(logged)
}
