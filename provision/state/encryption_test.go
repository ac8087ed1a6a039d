package state_test

import (
	"slices"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

func newEncryption(provider, key string, resources ...string) config.Encryption {
	return config.Encryption{Provider: provider, Key: key, Resources: resources}
}

func keyIDs(e state.Encryption) (list []string) {
	for _, k := range e.Keys {
		list = append(list, k.ID())
	}
	return list
}

func TestNewClustersAreEncryptedAtOnce(t *testing.T) {
	var e state.Encryption
	if err := e.Add(newEncryption("secretbox", "1", "secrets"), true); err != nil {
		t.Fatal(err)
	}
	if e.Write != "secretbox:v1:1" || !e.IsUpToDate(newEncryption("secretbox", "1", "secrets")) ||
		len(e.Keys[0].Secret) != 32 {
		t.Errorf("%+v", e)
	}
	var plain state.Encryption
	if err := plain.Add(config.Encryption{}, true); err != nil || !plain.IsUpToDate(config.Encryption{}) ||
		len(plain.Keys) != 0 {
		t.Errorf("%+v, %v", plain, err)
	}
}

// No server encrypts with a key before all servers can decrypt with it. No server loses a key while stored values
// depend on it.
func TestKeysDecryptBeforeAndAfterTheyEncrypt(t *testing.T) {
	var e state.Encryption
	for _, move := range []struct {
		want          config.Encryption
		write, leaves string
		added, after  []string
	}{
		// The cluster had no key before.
		{newEncryption("secretbox", "1", "secrets"), "secretbox:v1:1", "", []string{"secretbox:v1:1"},
			[]string{"secretbox:v1:1"}},
		{newEncryption("secretbox", "2", "secrets", "configmaps"), "secretbox:v1:2", "",
			[]string{"secretbox:v1:1", "secretbox:v1:2"}, []string{"secretbox:v1:2"}},
		{newEncryption("aesgcm", "2", "secrets"), "aesgcm:v1:2", "configmaps",
			[]string{"secretbox:v1:2", "aesgcm:v1:2"},
			[]string{"aesgcm:v1:2"}},
		{newEncryption("kms", "vault", "secrets"), "kms:v2:vault", "", []string{"aesgcm:v1:2", "kms:v2:vault"},
			[]string{"kms:v2:vault"}},
		{newEncryption("identity", ""), "", "secrets", []string{"kms:v2:vault"}, nil},
	} {
		before := e.Write
		if err := e.Add(move.want, false); err != nil {
			t.Fatal(err)
		}
		if e.Write != before || !slices.Equal(keyIDs(e), move.added) || e.IsUpToDate(move.want) {
			t.Errorf("added: %+v", e)
		}
		e.Switch(move.want)
		leaving := ""
		if len(e.LeavingResources) > 0 {
			leaving = e.LeavingResources[0]
		}
		if e.Write != move.write || !slices.Equal(keyIDs(e), move.added) || leaving != move.leaves {
			t.Errorf("switched: %+v", e)
		}
		e.Switch(move.want) // as a run that continues an interrupted one
		if e.Drop(); !slices.Equal(keyIDs(e), move.after) || !e.IsUpToDate(move.want) {
			t.Errorf("dropped: %+v", e)
		}
	}
	former := e.Former[0].Secret
	if err := e.Add(newEncryption("secretbox", "1", "secrets"), false); err != nil ||
		!slices.Equal(e.Keys[0].Secret, former) {
		t.Errorf("a name that was used before is another key: %v", err)
	}
}

// A KMS plugin keeps its own keys, and its socket can change.
func TestKeysOfPluginsAreNotInTheState(t *testing.T) {
	var e state.Encryption
	w := newEncryption("kms", "vault", "secrets")
	for _, endpoint := range []string{"unix:///run/a/a.sock", "unix:///run/b/b.sock"} {
		w.Endpoint = endpoint
		if err := e.Add(w, len(e.Keys) == 0); err != nil {
			t.Fatal(err)
		}
		if len(e.Keys) != 1 || len(e.Keys[0].Secret) != 0 || e.Keys[0].Endpoint != endpoint ||
			e.Write != "kms:v2:vault" ||
			!e.IsUpToDate(w) {
			t.Errorf("%+v", e)
		}
	}
}
