package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"clusterctl/daemons/api/directory"
)

// removalRecordAge is how long the removal of a volume is recorded. The controller repeats its request until it gets
// the response.
const removalRecordAge = 30 * 24 * time.Hour

// maxRemovalRecords limits how many removals are recorded, because claims may come and go all the time. If the request
// for a removed volume is repeated after its record is gone, the response is that its directory may be elsewhere.
const maxRemovalRecords = 4096

// records is the kubelet's directory, with the files that mark volumes as created or removed here.
type records string

// created returns the path of the file that marks a volume as created here. It is not in the directory of the
// volumes, which may be on another disk.
func (r records) created(name string) string {
	return filepath.Join(string(r), "provisioned", name)
}

// removed returns the path of the file that marks a volume as created and removed here.
func (r records) removed(name string) string { return filepath.Join(string(r), "removed", name) }

// recordCreated records that a volume was created, after its directory is durable.
func (r records) recordCreated(name string) error {
	note := r.created(name)
	if _, err := os.Lstat(note); err == nil {
		return nil
	}
	if err := os.Remove(r.removed(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeRecord(note, "")
}

// RecordProvisioned records all existing volumes, because some were created before there were notes. It drops old
// records of removals.
func (m *Manager) RecordProvisioned() error {
	entries, err := os.ReadDir(m.Provisioned)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		if e.IsDir() && directory.CheckName(e.Name()) == nil {
			err = errors.Join(err, records(m.Root).recordCreated(e.Name()))
		}
	}
	return errors.Join(err, records(m.Root).pruneRemovals())
}

// pruneRemovals deletes records of removals that are too old, and the oldest ones beyond the limit.
func (r records) pruneRemovals() error {
	entries, err := os.ReadDir(r.removed(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var kept []fs.FileInfo
	forget := func(name string) {
		if failed := os.Remove(r.removed(name)); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	for _, e := range entries {
		switch info, failed := e.Info(); {
		case failed != nil: // already deleted
		case time.Since(info.ModTime()) > removalRecordAge:
			forget(e.Name())
		default:
			kept = append(kept, info)
		}
	}
	if len(kept) > maxRemovalRecords {
		slices.SortFunc(kept, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
		for _, info := range kept[:len(kept)-maxRemovalRecords] {
			forget(info.Name())
		}
	}
	return err
}

// recordRemoval durably records that a volume is removed, before its directory is deleted. It replaces the note of the
// creation.
func (r records) recordRemoval(name string) error {
	removed := r.removed(name)
	if err := writeRecord(removed, ""); err != nil {
		return err
	}
	if err := r.pruneRemovals(); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(removed)); err != nil {
		return err
	}
	note := r.created(name)
	if err := os.Remove(note); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return syncDir(filepath.Dir(note))
}

// wasRemoved reports whether a volume that does not exist was removed here.
func (r records) wasRemoved(name string) bool {
	_, err := os.Lstat(r.removed(name))
	return err == nil
}

func writeRecord(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}
