package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	versionsFolder = "versions"
	versionsKept   = 10
)

// Keep keeps the state as it is at the beginning of a run, and removes the oldest of those that were kept: whatever the
// run does to it, there is the one from before. It lies in the folder versions, by its serial, in the form of
// state.json.
func (s Store) Keep() error {
	if err := s.Held(); err != nil {
		return err
	}
	was, err := s.Read()
	if err != nil || was == nil {
		return err
	}
	dir := filepath.Join(s.Dir, versionsFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keep the state: %w", err)
	}
	// A state is never written to, but replaced, so that another name of it keeps its content.
	if err := os.Link(s.path(), filepath.Join(dir, strconv.FormatInt(was.Serial, 10)+".json")); err != nil &&
		!errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keep the state: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for old states: %w", err)
	}
	var serials []int64
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if serial, err := strconv.ParseInt(name, 10, 64); err == nil && ok {
			serials = append(serials, serial)
		}
	}
	slices.Sort(serials)
	for _, old := range serials[:max(0, len(serials)-versionsKept)] {
		if err := os.Remove(filepath.Join(dir, strconv.FormatInt(old, 10)+".json")); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an old state: %w", err)
		}
	}
	return nil
}

// SetAside puts a state that cannot be read beside those that were kept, and returns where it is then.
func (s Store) SetAside(now time.Time) (path string, err error) {
	if err := s.Held(); err != nil {
		return "", err
	}
	dir := filepath.Join(s.Dir, versionsFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("set the state aside: %w", err)
	}
	path = filepath.Join(dir, "unreadable-"+now.UTC().Format("20060102T150405Z")+".json")
	if err := os.Rename(s.path(), path); err != nil {
		return "", fmt.Errorf("set the state aside: %w", err)
	}
	return path, nil
}
