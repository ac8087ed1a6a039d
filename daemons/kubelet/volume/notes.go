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

// rememberRemoved is how long the removal of a volume is recorded. The controller repeats its request until it gets the
// response.
const rememberRemoved = 30 * 24 * time.Hour

// mostRemoved limits how many removals are recorded, because claims may come and go all the time. If the request for a
// removed volume is repeated after its record is gone, the response is that its directory may be elsewhere.
const mostRemoved = 4096

// madeNote returns the path of the file that marks a volume as created here. It is not in the directory of the volumes,
// which may be on another disk.
func (m *Manager) madeNote(name string) string { return filepath.Join(m.Root, "provisioned", name) }

// removedNote returns the path of the file that marks a volume as created and removed here.
func (m *Manager) removedNote(name string) string { return filepath.Join(m.Root, "removed", name) }

// noteMade records that a volume was created, after its directory is durable.
func (m *Manager) noteMade(name string) error {
	note := m.madeNote(name)
	if _, err := os.Lstat(note); err == nil {
		return nil
	}
	if err := os.Remove(m.removedNote(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeNote(note, "")
}

// NoteProvisioned records all existing volumes, because some were created before there were notes. It drops old records
// of removals.
func (m *Manager) NoteProvisioned() error {
	entries, err := os.ReadDir(m.Provisioned)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		if e.IsDir() && directory.CheckName(e.Name()) == nil {
			err = errors.Join(err, m.noteMade(e.Name()))
		}
	}
	return errors.Join(err, m.forgetRemoved())
}

// forgetRemoved deletes records of removals that are too old, and the oldest ones beyond the limit.
func (m *Manager) forgetRemoved() error {
	entries, err := os.ReadDir(m.removedNote(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var kept []fs.FileInfo
	forget := func(name string) {
		if failed := os.Remove(m.removedNote(name)); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	for _, e := range entries {
		switch info, failed := e.Info(); {
		case failed != nil: // already deleted
		case time.Since(info.ModTime()) > rememberRemoved:
			forget(e.Name())
		default:
			kept = append(kept, info)
		}
	}
	if len(kept) > mostRemoved {
		slices.SortFunc(kept, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
		for _, info := range kept[:len(kept)-mostRemoved] {
			forget(info.Name())
		}
	}
	return err
}

// forgetMade durably records that a volume is removed, before its directory is deleted. It replaces the note of the
// creation.
func (m *Manager) forgetMade(name string) error {
	removed := m.removedNote(name)
	if err := writeNote(removed, ""); err != nil {
		return err
	}
	if err := m.forgetRemoved(); err != nil {
		return err
	}
	if err := flush(filepath.Dir(removed)); err != nil {
		return err
	}
	note := m.madeNote(name)
	if err := os.Remove(note); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return flush(filepath.Dir(note))
}

// removed reports whether a volume that does not exist was removed here.
func (m *Manager) removed(name string) bool {
	_, err := os.Lstat(m.removedNote(name))
	return err == nil
}

func writeNote(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}
