package state_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clusterctl/provision/state"
)

func TestJournalsArePrivateAndTheLatestAreKept(t *testing.T) {
	dir, start := filepath.Join(t.TempDir(), "a[1]"), time.Unix(1_000_000, 0)
	for i := range 25 {
		j, err := state.OpenJournal(dir, start.Add(time.Duration(i)*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		j.Write(state.Entry{Time: start, Machine: "machine.a", Step: "file /etc/x", Outcome: "created"})
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "journal"))
	if err != nil || len(entries) != 20 {
		t.Fatalf("%d journals, %v, want 20", len(entries), err)
	}
	paths := []string{filepath.Join(dir, "journal", entries[0].Name())}
	if want := "1970-01-12T184640.000Z.jsonl"; filepath.Base(paths[0]) != want {
		t.Errorf("the oldest is %s, want %s", filepath.Base(paths[0]), want)
	}
	info, err := os.Stat(paths[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	var e state.Entry
	if err := json.Unmarshal(text, &e); err != nil || e.Machine != "machine.a" {
		t.Errorf("entry %+v, %v", e, err)
	}
}
