package state

import (
	"testing"
	"time"
)

// The next run reports how far an interrupted one came.
// Proves P02.
func TestJournalsShowTheProgressOfTheirRun(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 31, 0, 0, time.UTC)
	started := Entry{Time: at, Outcome: Begun, Note: "Plan: 2 to change"}
	a := Entry{Machine: "machine.a", Outcome: Begun, Note: "changing"}
	for name, c := range map[string]struct {
		entries []Entry
		now     time.Time
		want    string
	}{
		"nothing":     {nil, at, ""},
		"came to end": {[]Entry{started, a, {Outcome: Done}}, at, ""},
		"killed": {[]Entry{started, a, {Machine: "machine.a", Step: "file /etc/x", Outcome: "created"}}, at,
			"continuing the run of 10:31, which was cut off while changing machine.a (after file /etc/x)"},
		"interrupted": {[]Entry{started, a, {Machine: "machine.b", Outcome: Begun, Note: "draining"},
			{Machine: "machine.a", Outcome: Done}, {Outcome: Interrupted}}, at,
			"continuing the run of 10:31, which was interrupted while draining machine.b; 1 machine was done"},
		"failed before anything, on another day": {[]Entry{started, {Outcome: Failed, Note: "no space left"}},
			at.Add(24 * time.Hour),
			"continuing the run of 2026-03-01 10:31, which failed"},
		"objects": {[]Entry{started, {Object: "Deployment shop/web", Outcome: "changed"}}, at,
			"continuing the run of 10:31, which was cut off while applying objects (after Deployment shop/web)"},
	} {
		t.Run(name, func(t *testing.T) {
			u := findUnfinished(c.entries)
			got := ""
			if u != nil {
				got = u.String(c.now)
			}
			if got != c.want {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestIncompleteLinesAreIgnoredAndFinishedRunsAreComplete(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	j, err := OpenJournal(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	j.Write(Entry{Time: now, Outcome: Begun})
	if _, err := j.f.WriteString(`{"time":"20`); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if u, err := LastUnfinished(dir); err != nil || u == nil {
		t.Fatalf("got %v, %v", u, err)
	}
	if err := RecordFinished(dir, now); err != nil {
		t.Fatal(err)
	}
	if u, err := LastUnfinished(dir); err != nil || u != nil {
		t.Errorf("got %v, %v after it was finished", u, err)
	}
}
