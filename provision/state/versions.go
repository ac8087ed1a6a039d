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
	maxVersions    = 10
)

// SaveVersion saves the state at the beginning of a run, so that the state before the run always exists, and removes
// the oldest saved states. They are in the directory versions, by serial number, in the format of state.json.
func (s Store) SaveVersion() error {
	if err := s.Held(); err != nil {
		return err
	}
	before, err := s.readSealed() // keys are not needed, and opening them with a passphrase takes long
	if err != nil || before == nil {
		return err
	}
	dir := filepath.Join(s.Dir, versionsFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keep the state: %w", err)
	}
	// The state file is replaced and never modified, so a hard link keeps the present content.
	if err := os.Link(s.path(), filepath.Join(dir, strconv.FormatInt(before.Serial, 10)+".json")); err != nil &&
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
	for _, old := range serials[:max(0, len(serials)-maxVersions)] {
		if err := os.Remove(filepath.Join(dir, strconv.FormatInt(old, 10)+".json")); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an old state: %w", err)
		}
	}
	return nil
}

// SetAside moves an unreadable state to the saved ones, and returns its new path.
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
