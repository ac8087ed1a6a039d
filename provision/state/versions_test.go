package state_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"clusterctl/provision/state"
)

// The states before each of the last ten runs are kept, and can be restored.
// Proves P02.
func TestTheStatesBeforeTheLastTenRunsAreKept(t *testing.T) {
	dir := t.TempDir()
	store := state.Store{Dir: filepath.Join(dir, "state"), Sealer: state.Sealer{KeyFile: filepath.Join(dir, "age.key")}}
	if err := store.SaveVersion(); err != nil {
		t.Fatalf("there is none yet: %v", err)
	}
	s := &state.State{Version: 1, Cluster: "home"}
	var first []byte
	for run := range 12 {
		if err := store.SaveVersion(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.Token = fmt.Sprint("run ", run)
			if err := store.Write(s); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(filepath.Join(store.Dir, "state.json"))
		if err != nil {
			t.Fatal(err)
		}
		if run == 1 { // the oldest of those that are kept
			first = text
		}
	}
	kept, err := filepath.Glob(filepath.Join(store.Dir, "versions", "*.json"))
	if err != nil || len(kept) != 10 {
		t.Errorf("%v are kept, %v", kept, err)
	}
	text, err := os.ReadFile(filepath.Join(store.Dir, "versions", "6.json"))
	if err != nil || !bytes.Equal(text, first) {
		t.Errorf("the state after the second run is not kept as it was: %v", err)
	}
	if err := os.WriteFile(filepath.Join(store.Dir, "state.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if back, err := store.Read(); err != nil || back.Token != "run 1" {
		t.Errorf("got %+v, %v", back, err)
	}
}
