package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Journal records what one run did, one JSON object per line. Users read it, and the next run reads where an
// interrupted one stopped. The machines themselves show what was really done.
type Journal struct {
	mu sync.Mutex
	f  *os.File
}

// Entry is a line of a journal.
type Entry struct {
	Time    time.Time `json:"time"`
	Machine string    `json:"machine,omitempty"` // address of the machine
	Object  string    `json:"object,omitempty"`  // kind, namespace and name
	Step    string    `json:"step,omitempty"`    // the step, such as "file /etc/hosts"
	// Outcome is begun, sent, created, changed, removed, waiting, done, failed, interrupted or note.
	Outcome string `json:"outcome"`
	Note    string `json:"note,omitempty"`
}

const (
	journalFolder = "journal"
	journalSuffix = ".jsonl"
	maxJournals   = 20
)

// OpenJournal creates the journal of a run that starts now in the state's directory, and removes the oldest journals.
func OpenJournal(dir string, now time.Time) (*Journal, error) {
	dir = filepath.Join(dir, journalFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the journal's folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, now.UTC().Format("2006-01-02T150405.000Z")+journalSuffix),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("begin the journal: %w", err)
	}
	names, err := journalPaths(dir)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for _, old := range names[:max(0, len(names)-maxJournals)] {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(fmt.Errorf("remove an old journal: %w", err), f.Close())
		}
	}
	return &Journal{f: f}, nil
}

// journalPaths returns the paths of the journals in a directory, oldest first.
func journalPaths(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the journals: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), journalSuffix) {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

// Write appends a line. It returns no error, because a run must not end when its journal cannot be written; Close
// returns the error.
func (j *Journal) Write(e Entry) {
	text, err := json.Marshal(e)
	if err != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = j.f.Write(append(text, '\n'))
}

// Close closes the journal.
func (j *Journal) Close() error {
	if err := errors.Join(j.f.Sync(), j.f.Close()); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}
