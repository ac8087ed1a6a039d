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

// rememberRemoved is how long it is known that a volume was removed: who asked for it asks again until it has heard so.
const rememberRemoved = 30 * 24 * time.Hour

// mostRemoved is how many removals are remembered: claims may come and go all the time. Of a volume whose removal is
// forgotten it is said, if somebody asks once more, that its directory may lie elsewhere.
const mostRemoved = 4096

// madeNote is the file that says that a volume was made here. It is not beside the volumes, which may be on a disk of
// their own.
func (m *Manager) madeNote(name string) string { return filepath.Join(m.Root, "provisioned", name) }

// removedNote is the file that says that a volume was made here, and removed.
func (m *Manager) removedNote(name string) string { return filepath.Join(m.Root, "removed", name) }

// noteMade notes that a volume was made, after its directory is there for good.
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

// NoteProvisioned notes all volumes that are there: some were made before there were notes. What was removed long ago
// is forgotten.
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

// forgetRemoved takes the notes of removals away that are old, and the oldest of those that are too many.
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
		case failed != nil: // somebody else has taken it away
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

// forgetMade takes the note away for good, before the directory goes, and notes that it does.
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

// removed says whether a volume that is not here was removed here.
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
