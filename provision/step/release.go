package step

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"clusterctl/provision/host"
)

// KeepRelease saves the files that an update changes, so that they can be restored if the new release does not work:
// the links of programs, units, settings, and the unit markers. It is the first step. The saved files always belong to
// the last confirmed release. After an interrupted update, another one adds to them and replaces nothing.
type KeepRelease struct {
	To       host.Release `json:"to"`
	Programs []Symlink    `json:"programs"` // an update takes place if one has another target
	Paths    []string     `json:"paths"`
}

// Label returns a fixed text.
func (s *KeepRelease) Label() string { return "former release" }

// Check reports a change if an update takes place whose files are not all saved.
func (s *KeepRelease) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	former, err := host.ReadSavedRelease(h)
	if err != nil {
		return Change{}, err
	}
	if former != nil && former.To == s.To && len(s.missingPaths(former)) == 0 {
		return Change{}, nil
	}
	updates := former != nil
	for _, p := range s.Programs {
		info, err := h.Stat(p.Path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Change{}, err
		}
		updates = updates || err == nil && info.Target != p.Target
	}
	if !updates {
		return Change{}, nil
	}
	w.Touch(host.SavedReleaseDir)
	return Change{
		Action: Update,
		Kind:   "release",
		Name:   s.To.Version,
		Note:   "the former one is kept until it has held",
	}, nil
}

func (s *KeepRelease) missingPaths(former *host.SavedRelease) (paths []string) {
	for _, p := range s.Paths {
		if !slices.ContainsFunc(former.Files, func(f host.SavedFile) bool { return f.Path == p }) {
			paths = append(paths, p)
		}
	}
	return paths
}

// Apply copies the files. It writes the list last: without it nothing counts as saved, and nothing was changed yet.
func (s *KeepRelease) Apply(_ context.Context, h host.Host, _ *Walk) error {
	former, err := host.ReadSavedRelease(h)
	if err != nil {
		return err
	}
	if former == nil {
		former = &host.SavedRelease{Time: time.Now()}
		held, err := host.ReadRelease(h)
		if err != nil {
			return err
		}
		if held != nil {
			former.From = *held
		}
	}
	former.To = s.To
	if err := h.Mkdir(host.SavedReleaseDir, 0o700); err != nil {
		return err
	}
	for _, p := range s.missingPaths(former) {
		f, err := saveFile(h, p, strconv.Itoa(len(former.Files)))
		if err != nil {
			return fmt.Errorf("keep %s: %w", p, err)
		}
		former.Files = append(former.Files, f)
	}
	return writeJSON(h, host.SavedListPath, former, 0o600)
}

func saveFile(h host.Host, p, name string) (host.SavedFile, error) {
	f := host.SavedFile{Path: p}
	info, err := h.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if info.Mode.IsDir() {
		return f, errors.New("it is a directory")
	}
	f.Mode, f.UID, f.GID = info.Mode.Perm(), info.UID, info.GID
	if info.Target != "" {
		f.Target = info.Target
		return f, nil
	}
	content, err := h.ReadFile(p)
	if err != nil {
		return f, err
	}
	f.CopyName = name
	return f, h.WriteFile(path.Join(host.SavedReleaseDir, name), bytes.NewReader(content), 0o600, 0, 0)
}

func writeJSON(h host.Host, p string, value any, mode fs.FileMode) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return h.WriteFile(p, bytes.NewReader(append(text, '\n')), mode, 0, 0)
}

// Sweep completes an update: it records the confirmed release and deletes the files of former releases.
type Sweep struct {
	Release host.Release `json:"release"`
	Keep    []string     `json:"keep"` // digests of files to keep
}

// Label returns a fixed text.
func (s *Sweep) Label() string { return "no former releases" }

// Check reports a change if the release is new or not recorded as confirmed.
func (s *Sweep) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	former, err := host.ReadSavedRelease(h)
	if err != nil {
		return Change{}, err
	}
	if former != nil || len(w.Touched([]string{host.SavedReleaseDir})) > 0 {
		return Change{Action: Delete, Kind: "binary", Name: "of former releases"}, nil
	}
	held, err := host.ReadRelease(h)
	if err != nil || held == nil || *held != s.Release {
		return Change{
			Action: Create,
			Kind:   "file",
			Name:   host.ReleaseFile,
		}, nil // an unreadable record is written again
	}
	return Change{}, nil
}

func (s *Sweep) oldFiles(h host.Host) (list []string, err error) {
	names, err := h.List(host.LibraryDir)
	if err != nil {
		return nil, nil // the directory does not exist yet
	}
	for _, n := range names {
		if !slices.Contains(s.Keep, n) {
			list = append(list, n)
		}
	}
	return list, nil
}

// Apply deletes the files. The file of a running program exists until the process ends.
func (s *Sweep) Apply(_ context.Context, h host.Host, _ *Walk) error {
	old, err := s.oldFiles(h)
	if err != nil {
		return err
	}
	for _, n := range old {
		if err := h.RemoveAll(host.LibraryDir + "/" + n); err != nil {
			return err
		}
	}
	if err := writeJSON(h, host.ReleaseFile, s.Release, 0o644); err != nil {
		return err
	}
	return h.RemoveAll(host.SavedReleaseDir)
}

// RollBack restores the files that KeepRelease has saved, and restarts the units that were started with other files.
type RollBack struct {
	Units   []HeldDaemon  `json:"units"`             // in the order in which they start
	Timeout time.Duration `json:"timeout,omitempty"` // timeout for becoming ready; zero means two minutes
}

// Label returns a fixed text.
func (s *RollBack) Label() string { return "roll-back" }

// Check checks whether files are saved.
func (s *RollBack) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	former, err := host.ReadSavedRelease(h)
	if err != nil || former == nil {
		return Change{}, err
	}
	return Change{Action: Update, Kind: "release", Name: former.From.Version, Note: "rolled back"}, nil
}

// Apply restores the files and waits until all daemons are healthy. Only then it deletes the saved files, so that a
// failed roll-back can be repeated.
func (s *RollBack) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	former, err := host.ReadSavedRelease(h)
	if err != nil || former == nil {
		return err
	}
	for _, f := range former.Files {
		if err := restoreFile(h, f); err != nil {
			return fmt.Errorf("put %s back: %w", f.Path, err)
		}
	}
	if err := h.Reload(ctx); err != nil {
		return fmt.Errorf("have systemd read its units again: %w", err)
	}
	var errs []error
	for _, u := range s.Units {
		if u.Unit == "" {
			continue
		}
		if err := restartUnit(ctx, h, u.Unit, former.Time); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.Unit, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var existing []HeldDaemon
	for _, u := range s.Units {
		u.Program = "" // the program of the former release is not known
		if unit, err := h.Unit(ctx, u.Unit); u.Unit == "" || err != nil || unit.Fragment != "" {
			existing = append(existing, u)
		}
	}
	if err := (&HoldRelease{Units: existing, Timeout: s.Timeout}).awaitConfirmed(ctx, h); err != nil {
		return err
	}
	return h.RemoveAll(host.SavedReleaseDir)
}

// restartUnit restarts a unit with the restored files, unless it has run with them all the time.
func restartUnit(ctx context.Context, h host.Host, unit string, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	u, err := h.Unit(ctx, unit)
	switch {
	case err != nil:
		return err
	case u.Fragment == "": // the unit came with the new release
		return h.Stop(ctx, unit)
	case u.Active == "active" && !u.Started.After(since):
		return nil
	}
	return h.Restart(ctx, unit)
}

func restoreFile(h host.Host, f host.SavedFile) error {
	info, err := h.Stat(f.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	exists := err == nil
	switch {
	case f.Target != "":
		if exists && info.Target == f.Target {
			return nil
		}
		return h.Symlink(f.Target, f.Path)
	case f.CopyName == "":
		if !exists {
			return nil
		}
		return h.RemoveAll(f.Path)
	}
	content, err := h.ReadFile(path.Join(host.SavedReleaseDir, f.CopyName))
	if err != nil {
		return err
	}
	if now, err := h.ReadFile(f.Path); exists && err == nil && bytes.Equal(now, content) {
		return nil
	}
	return h.WriteFile(f.Path, strings.NewReader(string(content)), f.Mode, f.UID, f.GID)
}
