package step

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"clusterctl/provision/host"
)

// ForeignFiles is the kind of a change that is none: files of others are shown.
const ForeignFiles = "foreign"

// Foreign looks for files of others in a folder whose files do something. They are shown and stay.
type Foreign struct {
	Dir string   `json:"dir"`
	Own []string `json:"own"` // names of files that other steps are about
	Why string   `json:"why"` // what such a file does
}

// Label names the folder.
func (s *Foreign) Label() string { return "files of others in " + s.Dir }

// Check lists them. It finds nothing to do.
func (s *Foreign) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	names, err := h.List(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Change{}, nil
	}
	if err != nil {
		return Change{}, err
	}
	var found []string
	for _, name := range names {
		if !strings.HasPrefix(name, ".") && !slices.Contains(s.Own, name) {
			found = append(found, path.Join(s.Dir, name))
		}
	}
	if len(found) == 0 {
		return Change{}, nil
	}
	return Change{Kind: ForeignFiles, Name: strings.Join(found, ", "), Note: s.Why}, nil
}

// Apply does nothing.
func (s *Foreign) Apply(context.Context, host.Host, *Walk) error { return nil }

// Pruned is that a folder has no folders of ours but some. Those of others stay.
type Pruned struct {
	Dir     string   `json:"dir"`
	File    string   `json:"file"`    // in each folder
	Written string   `json:"written"` // how that file begins when the folder is ours
	Keep    []string `json:"keep"`
}

// Label names the folder.
func (s *Pruned) Label() string { return "no former folders in " + s.Dir }

func (s *Pruned) found(h host.Host) (list []string, err error) {
	names, err := h.List(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if slices.Contains(s.Keep, name) {
			continue
		}
		text, err := h.ReadFile(path.Join(s.Dir, name, s.File))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			if info, statErr := h.Stat(path.Join(s.Dir, name)); statErr == nil && !info.Mode.IsDir() {
				continue // a file of somebody's
			}
			return nil, err
		}
		if err == nil && strings.HasPrefix(string(text), s.Written) {
			list = append(list, path.Join(s.Dir, name))
		}
	}
	return list, nil
}

// Check looks for such folders.
func (s *Pruned) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	list, err := s.found(h)
	if err != nil || len(list) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "directory", Name: strings.Join(list, ", ")}, nil
}

// Apply removes them.
func (s *Pruned) Apply(_ context.Context, h host.Host, _ *Walk) error {
	list, err := s.found(h)
	for _, p := range list {
		err = errors.Join(err, h.RemoveAll(p))
	}
	return err
}

// Program is that a program which is not ours is on the machine. It is only looked for.
type Program struct {
	Path string `json:"path"`
	For  string `json:"for"` // what needs it
}

// Label names the program.
func (s *Program) Label() string { return "program " + s.Path }

// Check looks for it. That it is missing is an error: no step brings it.
func (s *Program) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	info, err := h.Stat(s.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Change{}, fmt.Errorf("%s is not there, and %s needs it: put the program on the machine first", s.Path,
			s.For)
	case err != nil:
		return Change{}, err
	case info.Mode.IsDir() || info.Target == "" && info.Mode.Perm()&0o111 == 0:
		return Change{}, fmt.Errorf("%s is no program, and %s needs one: chmod 755 it", s.Path, s.For)
	case info.UID != 0 || info.Target == "" && info.Mode.Perm()&0o022 != 0:
		return Change{}, fmt.Errorf("%s may be written by others than root, and the kubelet would run it as root: "+
			"chown root it and chmod 755", s.Path)
	}
	return Change{}, nil
}

// Apply does nothing.
func (s *Program) Apply(context.Context, host.Host, *Walk) error { return nil }
