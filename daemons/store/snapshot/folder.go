package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/config/store"
)

// These are the suffixes of a snapshot's files: the database and the record that describes it. A file that is being
// written has another one.
const (
	databaseSuffix = ".db"
	recordSuffix   = ".json"
	partialSuffix  = ".partial"
)

// Local and Remote are the places of a snapshot.
const (
	Local  = "local"
	Remote = "s3"
)

// listFolder returns the snapshots of a folder, the newest first. The record is written first and removed last. So a
// record without a database remains of an interrupted write or removal, and a database without a record is not a file
// of this program.
func listFolder(dir string) ([]store.Snapshot, error) {
	names, err := folderEntries(dir, "", recordSuffix)
	if err != nil {
		return nil, err
	}
	var all []store.Snapshot
	for _, name := range names {
		s, err := readRecord(name)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(filepath.Join(dir, s.Name+databaseSuffix))
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() != s.Size {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.In = []string{Local}
		all = append(all, s)
	}
	sortNewestFirst(all)
	return all, nil
}

// folderEntries returns the sorted paths of a folder's entries whose names have the given prefix and suffix. A missing
// folder has no entries.
func folderEntries(dir, begin, end string) (paths []string, err error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range list {
		if name := e.Name(); strings.HasPrefix(name, begin) && strings.HasSuffix(name, end) {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths, err
}

func sortNewestFirst(all []store.Snapshot) {
	slices.SortFunc(all, func(a, b store.Snapshot) int {
		if c := b.Taken.Compare(a.Taken); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}

func readRecord(path string) (s store.Snapshot, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && (s.Name == "" || s.Name != strings.TrimSuffix(filepath.Base(path), recordSuffix)) {
		err = fmt.Errorf("it is of a snapshot called %q", s.Name)
	}
	if err != nil {
		return s, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// Expired returns the snapshots to remove. all has the newest first. For each reason except store.Manual these are the
// ones beyond keep, and the ones older than maxAge. The newest snapshot stays, whatever its age.
func Expired(all []store.Snapshot, keep int, maxAge time.Duration, now time.Time) (removed []store.Snapshot) {
	seen := map[string]int{}
	for i, s := range all {
		reason := s.Reason
		switch reason {
		case store.Manual:
			continue
		case store.Scheduled:
		default:
			reason = "before a change"
		}
		seen[reason]++
		if i > 0 && (seen[reason] > keep || maxAge > 0 && now.Sub(s.Taken) > maxAge) {
			removed = append(removed, s)
		}
	}
	return removed
}

// removeLocal removes a snapshot, its record last. Without a record, the database would not be recognized as a
// snapshot, and would stay.
func removeLocal(dir, name string) error {
	for _, end := range []string{databaseSuffix, recordSuffix} {
		if err := os.Remove(filepath.Join(dir, name+end)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the snapshot %s: %w", name, err)
		}
	}
	return nil
}

// removeLeftovers removes what interrupted writes have left. The caller holds the folder's lock.
func removeLeftovers(dir string) error {
	names, err := folderEntries(dir, ".", partialSuffix)
	if err != nil {
		return err
	}
	records, err := folderEntries(dir, "etcd-", recordSuffix)
	if err != nil {
		return err
	}
	for _, name := range records {
		if _, err := os.Stat(strings.TrimSuffix(name, recordSuffix) + databaseSuffix); errors.Is(err, fs.ErrNotExist) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// lockFolder prevents programs on this machine from writing to a folder at the same time. It waits as long as wait
// returns nil.
func lockFolder(dir string, wait func() error) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		if err := wait(); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("another snapshot is being written to %s: %w", dir, err)
		}
	}
}

// writeFileSynced writes a small file atomically: after a power cut it has its content or does not exist.
func writeFileSynced(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*"+partialSuffix)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // after the rename there is nothing to remove
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}
