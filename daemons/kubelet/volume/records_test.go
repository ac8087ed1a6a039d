package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The notes of removed volumes are limited on a long-running node.
func TestRecordsOfRemovedVolumesArePruned(t *testing.T) {
	m, _, p := provisioned(t)
	old := time.Now().Add(-removalRecordAge - time.Hour)
	note := func(name string, at time.Time) {
		t.Helper()
		if err := writeRecord(records(m.Root).removed(name), ""); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(records(m.Root).removed(name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	note("pvc-long-ago", old)
	for i := range maxRemovalRecords + 10 {
		note(fmt.Sprintf("pvc-%04d", i+2), time.Now().Add(-time.Hour+time.Duration(i)*time.Millisecond))
	}
	if _, err := m.Setup(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(m.PodDir("u")); err != nil {
		t.Fatal(err)
	}
	if err := m.RemoveProvisioned("pvc-1", true, ""); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(records(m.Root).removed("x")))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != maxRemovalRecords {
		t.Errorf("%d notes are left of volumes that were removed", len(entries))
	}
	for name, want := range map[string]bool{"pvc-1": true, "pvc-long-ago": false, "pvc-0002": false,
		fmt.Sprintf("pvc-%04d", maxRemovalRecords+11): true} {
		if records(m.Root).wasRemoved(name) != want {
			t.Errorf("that %s was removed is known: %t", name, !want)
		}
	}
}
