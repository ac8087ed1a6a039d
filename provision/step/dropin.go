package step

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"clusterctl/provision/host"
)

// DropIns removes a unit's drop-ins, as systemctl edit and set-property create them, and unit files that override the
// unit's own. Drop-ins for several units, such as in service.d, are left to their owner.
type DropIns struct {
	Unit string `json:"unit"`
}

// Directories in which systemd looks for overrides of a unit. In besides, only drop-ins override it. Files in before
// take precedence over /etc/systemd/system.
var (
	unitDirs    = []string{"/etc/systemd/system", "/run/systemd/system"}
	controlDirs = []string{"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient"}
)

// Label names the unit.
func (s *DropIns) Label() string { return "no drop-ins of " + s.Unit }

// findOverrides returns the files that override the unit, and the drop-in directories.
func (s *DropIns) findOverrides(h host.Host) (files, dirs []string, err error) {
	for _, at := range append(append([]string(nil), unitDirs...), controlDirs...) {
		dir := path.Join(at, s.Unit+".d")
		names, err := h.List(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		for _, n := range names {
			if strings.HasSuffix(n, ".conf") {
				files = append(files, path.Join(dir, n))
			}
		}
		dirs = append(dirs, dir)
	}
	for _, at := range controlDirs {
		file := path.Join(at, s.Unit)
		if _, err := h.Stat(file); err == nil {
			files = append(files, file)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
	}
	return files, dirs, nil
}

// Check looks for overrides and returns their content as the difference.
func (s *DropIns) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	files, _, err := s.findOverrides(h)
	if err != nil || len(files) == 0 {
		return Change{}, err
	}
	c := Change{Action: Delete, Kind: "drop-in", Name: strings.Join(files, ", "), Note: "changes " + s.Unit}
	for _, f := range files {
		text, err := h.ReadFile(f)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the file may be a dangling link
			return Change{}, err
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" {
				c.Diff = append(c.Diff, "- "+withoutValues(line))
			}
		}
	}
	w.Touch(UnitDir + s.Unit)
	return c, nil
}

// assignment matches a variable and its value in Environment=.
var assignment = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_]*)=("[^"]*"|'[^']*'|[^\s"']*)`)

// withoutValues returns a line of a drop-in without the values of environment variables and credentials, which may be
// passwords.
func withoutValues(line string) string {
	for _, key := range []string{"Environment=", "SetCredential=", "SetCredentialEncrypted="} {
		rest, ok := strings.CutPrefix(line, key)
		if !ok {
			continue
		}
		var names []string
		for _, m := range assignment.FindAllStringSubmatch(rest, -1) {
			names = append(names, m[1]+"=(not shown)")
		}
		if names == nil {
			return key + "(not shown)"
		}
		return key + strings.Join(names, " ")
	}
	return line
}

// Apply removes the overrides. It deletes the unit's marker first, so that the unit is restarted even if this is
// interrupted.
func (s *DropIns) Apply(_ context.Context, h host.Host, _ *Walk) error {
	files, dirs, err := s.findOverrides(h)
	if err != nil {
		return err
	}
	if err := h.RemoveAll(path.Join(MarkerDir, s.Unit)); err != nil {
		return err
	}
	for _, f := range files {
		if err := h.RemoveAll(f); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		if names, err := h.List(dir); err == nil && len(names) == 0 {
			if err := h.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}
