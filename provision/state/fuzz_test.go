package state_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/provision/host"
	"clusterctl/provision/state"
)

// FuzzRead parses state files with keys that can be decrypted. A file gives a usable state or an error.
func FuzzRead(f *testing.F) {
	store := state.Store{
		Dir:    f.TempDir(),
		Sealer: state.Sealer{KeyFile: filepath.Join(f.TempDir(), "clusterctl", "age.key")},
	}
	s, err := state.New("home", authorities)
	if err != nil {
		f.Fatal(err)
	}
	s.Revoke(certs.Revoked{CA: certs.ClusterCA, Serial: "a1", Name: "x", Until: time.Now().Add(time.Hour)})
	if err := store.Write(s); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(store.Dir, "state.json"))
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := json.Marshal(s.Sealed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("null"))
	for _, part := range []string{`"machines":null,"etcd":null,"cas":null`, `"machines":{"a":{}},"revoked":[{"ca":"x","serial":"zz"}]`, `"rotations":{"kubernetes":{}},"cas":{"kubernetes":""}`} {
		f.Add([]byte(`{"version":1,"cluster":"home",` + part + `,"sealed":` + string(sealed) + `}`))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		store := state.Store{Dir: dir, Sealer: store.Sealer}
		if err := os.WriteFile(filepath.Join(dir, "state.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.Read()
		if err != nil {
			return
		}
		s.Machines["machine.a"] = state.Machine{}
		s.Etcd["a"] = state.Member{}
		s.CAs["x"], s.Keys.CAs["x"] = nil, nil
		s.RecordRelease(host.Release{Build: "b"})
		s.CA(certs.ClusterCA)
		_, _ = s.RevocationLists(time.Now())
		if err := store.Write(s); err != nil {
			t.Error(err)
		}
	})
}
