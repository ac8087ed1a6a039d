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

// DropIns is that nothing but a unit's own file says what the unit is: no drop-ins, as systemctl edit and set-property
// make them, and no file that goes before it. Drop-ins of many units together, as in service.d, are their owner's.
type DropIns struct {
	Unit string `json:"unit"`
}

// overrides are where systemd looks for what changes a unit. In the first group only drop-ins do; what is in the second
// goes before /etc/systemd/system itself.
var (
	besides = []string{"/etc/systemd/system", "/run/systemd/system"}
	before  = []string{"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient"}
)

// Label names the unit.
func (s *DropIns) Label() string { return "no drop-ins of " + s.Unit }

// found are the files that change the unit, and the directories that they are in.
func (s *DropIns) found(h host.Host) (files, dirs []string, err error) {
	for _, at := range append(append([]string(nil), besides...), before...) {
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
	for _, at := range before {
		file := path.Join(at, s.Unit)
		if _, err := h.Stat(file); err == nil {
			files = append(files, file)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
	}
	return files, dirs, nil
}

// Check looks for them, and shows what is in them.
func (s *DropIns) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	files, _, err := s.found(h)
	if err != nil || len(files) == 0 {
		return Change{}, err
	}
	c := Change{Action: Delete, Kind: "drop-in", Name: strings.Join(files, ", "), Note: "changes " + s.Unit}
	for _, f := range files {
		text, err := h.ReadFile(f)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a link to nothing
			return Change{}, err
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" {
				c.Diff = append(c.Diff, "- "+unvalued(line))
			}
		}
	}
	w.Touch(UnitDir + s.Unit)
	return c, nil
}

// assignment is a variable's name in a unit's Environment=, and what it is set to.
var assignment = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_]*)=("[^"]*"|'[^']*'|[^\s"']*)`)

// unvalued is a line of a drop-in without what variables of the environment are set to: passwords stand there.
func unvalued(line string) string {
	for _, key := range []string{"Environment=", "SetCredential=", "SetCredentialEncrypted="} {
		rest, is := strings.CutPrefix(line, key)
		if !is {
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

// Apply removes them. That the unit was started without them is no longer known, should this be cut off.
func (s *DropIns) Apply(_ context.Context, h host.Host, _ *Walk) error {
	files, dirs, err := s.found(h)
	if err != nil {
		return err
	}
	if err := h.RemoveAll(path.Join(Markers, s.Unit)); err != nil {
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
