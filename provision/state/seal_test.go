package state_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"clusterctl/provision/state"
)

// Sealing takes a tenth of a second with a passphrase. A run that does not change the keys writes them as it read them.
func TestKeysAreSealedAgainOnlyWhenTheyChange(t *testing.T) {
	store := state.Store{Dir: t.TempDir(), Sealer: state.Sealer{KeyFile: filepath.Join(t.TempDir(), "age.key")}}
	s, err := state.New("home", authorities)
	if err == nil {
		err = store.Write(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	next := rewrite(t, store, func(s *state.State) { s.Token = "changed" })
	if !bytes.Equal(next.Sealed, s.Sealed) || next.Token != "changed" {
		t.Errorf("unchanged keys were sealed again (token %q)", next.Token)
	}
	next = rewrite(t, store, func(s *state.State) { s.Keys.Secrets = []string{"one more"} })
	if bytes.Equal(next.Sealed, s.Sealed) || len(next.Keys.Secrets) != 1 {
		t.Errorf("changed keys were not sealed: %q", next.Keys.Secrets)
	}
	former := next.Sealed
	store.Sealer.KeyFile = filepath.Join(t.TempDir(), "other.key")
	if err := store.Write(next); err != nil {
		t.Fatal(err)
	}
	if back, err := store.Read(); err != nil || bytes.Equal(back.Sealed, former) {
		t.Errorf("the keys were not sealed with the new key file: %v", err)
	}
}

// rewrite reads the state, changes it, writes it, and reads it again.
func rewrite(t *testing.T, store state.Store, change func(*state.State)) *state.State {
	t.Helper()
	s, err := store.Read()
	if err == nil {
		change(s)
		err = store.Write(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s, err = store.Read(); err != nil {
		t.Fatal(err)
	}
	return s
}

// A saved version is a link to the present file, which is made without opening the keys.
func TestStatesAreSavedWithoutOpeningTheirKeys(t *testing.T) {
	store := state.Store{Dir: t.TempDir(), Sealer: state.Sealer{KeyFile: filepath.Join(t.TempDir(), "age.key")}}
	if err := store.Write(&state.State{Version: 1, Cluster: "home"}); err != nil {
		t.Fatal(err)
	}
	store.Sealer.KeyFile = filepath.Join(t.TempDir(), "absent.key")
	if err := store.SaveVersion(); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(store.Dir, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(store.Dir, "versions", "1.json")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the saved state differs: %v", err)
	}
}
