package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Outcomes that are read back from journals.
const (
	Begun       = "begun" // of a run, or of a machine with what is done to it
	Done        = "done"
	Failed      = "failed"
	Interrupted = "interrupted"
)

// Unfinished describes a run that did not complete.
type Unfinished struct {
	Began             time.Time
	Outcome           string   // "was interrupted", "failed", or "was cut off" if it could not record its end
	InProgress        []string // what was in progress: "changing machine.a (after file /etc/hosts)"
	CompletedMachines int      // number of machines that it had completed
}

// String describes the run for users. It includes the date if now is on another day.
func (u *Unfinished) String(now time.Time) string {
	start := u.Began.In(now.Location())
	format := "15:04"
	if start.Format(time.DateOnly) != now.Format(time.DateOnly) {
		format = "2006-01-02 15:04"
	}
	text := "continuing the run of " + start.Format(format) + ", which " + u.Outcome
	if len(u.InProgress) > 0 {
		const maximum = 3
		shown := u.InProgress[:min(maximum, len(u.InProgress))]
		text += " while " + strings.Join(shown, ", ")
		if more := len(u.InProgress) - maximum; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	switch {
	case u.CompletedMachines == 1:
		text += "; 1 machine was done"
	case u.CompletedMachines > 1:
		text += fmt.Sprintf("; %d machines were done", u.CompletedMachines)
	}
	return text
}

// LastUnfinished reads the newest journal. It returns nil if its run completed, or if there is none.
func LastUnfinished(dir string) (*Unfinished, error) {
	path, err := newestJournal(dir)
	if path == "" || err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last run's journal: %w", err)
	}
	var list []Entry
	for line := range bytes.Lines(text) {
		var e Entry
		if json.Unmarshal(line, &e) == nil { // the last line of an interrupted run may be incomplete
			list = append(list, e)
		}
	}
	return findUnfinished(list), nil
}

func newestJournal(dir string) (string, error) {
	names, err := journalPaths(filepath.Join(dir, journalFolder))
	if err != nil || len(names) == 0 {
		return "", err
	}
	return names[len(names)-1], nil
}

// findUnfinished evaluates the entries of a journal.
func findUnfinished(list []Entry) *Unfinished {
	if len(list) == 0 {
		return nil
	}
	u := &Unfinished{Began: list[0].Time, Outcome: "was cut off"}
	doing, after := map[string]string{}, map[string]string{}
	done := map[string]bool{}
	for _, e := range list {
		switch {
		case e.Machine == "" && e.Object == "":
			switch e.Outcome {
			case Done:
				return nil
			case Failed:
				u.Outcome = "failed"
			case Interrupted:
				u.Outcome = "was interrupted"
			}
		case e.Object != "":
			doing["objects"] = "applying objects"
			after["objects"] = e.Object
		case e.Outcome == Begun:
			doing[e.Machine] = strings.TrimSpace(e.Note + " " + e.Machine)
			delete(after, e.Machine)
		case e.Outcome == Done:
			done[e.Machine] = true
			delete(doing, e.Machine)
		case e.Step != "" && e.Outcome != "note":
			after[e.Machine] = e.Step
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(doing)) {
		text := doing[subject]
		if last := after[subject]; last != "" {
			text += " (after " + last + ")"
		}
		u.InProgress = append(u.InProgress, text)
	}
	u.CompletedMachines = len(done)
	return u
}

// RecordFinished records in the newest journal that a later run found nothing left to do.
func RecordFinished(dir string, now time.Time) error {
	path, err := newestJournal(dir)
	if path == "" || err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("finish the last run's journal: %w", err)
	}
	j := &Journal{f: f}
	_, _ = f.WriteString("\n") // terminates an incomplete line
	j.Write(Entry{Time: now, Outcome: Done, Note: "a later run found nothing left to do"})
	return j.Close()
}
