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

// ForeignFiles is the kind of a Change without an action: it reports files that clusterctl did not write.
const ForeignFiles = "foreign"

// Foreign reports the files in a folder that clusterctl did not write, for folders whose files have an effect, such as
// static pod manifests. It does not remove them.
type Foreign struct {
	Dir      string   `json:"dir"`
	OwnFiles []string `json:"own"` // names of files that other steps write
	Effect   string   `json:"why"` // the effect of a file in the folder
}

// Label returns a text with the folder.
func (s *Foreign) Label() string { return "files of others in " + s.Dir }

// Check returns a Change of kind ForeignFiles that lists the files, without an action. Hidden files are ignored.
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
		if !strings.HasPrefix(name, ".") && !slices.Contains(s.OwnFiles, name) {
			found = append(found, path.Join(s.Dir, name))
		}
	}
	if len(found) == 0 {
		return Change{}, nil
	}
	return Change{Kind: ForeignFiles, Name: strings.Join(found, ", "), Note: s.Effect}, nil
}

// Apply does nothing.
func (s *Foreign) Apply(context.Context, host.Host, *Walk) error { return nil }

// PruneDirs removes the subfolders of a folder that clusterctl wrote and that are no longer wanted. Other subfolders
// stay.
type PruneDirs struct {
	Dir     string   `json:"dir"`
	File    string   `json:"file"`    // name of the file in each subfolder that shows who wrote the subfolder
	Written string   `json:"written"` // how File begins when clusterctl wrote the subfolder
	Keep    []string `json:"keep"`    // names of the wanted subfolders
}

// Label returns a text with the folder.
func (s *PruneDirs) Label() string { return "no former folders in " + s.Dir }

func (s *PruneDirs) findObsolete(h host.Host) (list []string, err error) {
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
				continue // not a directory
			}
			return nil, err
		}
		if err == nil && strings.HasPrefix(string(text), s.Written) {
			list = append(list, path.Join(s.Dir, name))
		}
	}
	return list, nil
}

// Check reports the subfolders to remove.
func (s *PruneDirs) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	list, err := s.findObsolete(h)
	if err != nil || len(list) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "directory", Name: strings.Join(list, ", ")}, nil
}

// Apply removes the subfolders. It tries all of them and returns the joined errors.
func (s *PruneDirs) Apply(_ context.Context, h host.Host, _ *Walk) error {
	list, err := s.findObsolete(h)
	for _, p := range list {
		err = errors.Join(err, h.RemoveAll(p))
	}
	return err
}

// Program checks that a program which clusterctl does not install is on the machine, and that only root can change it.
type Program struct {
	Path string `json:"path"`
	For  string `json:"for"` // the block that needs the program, for errors
}

// Label returns a text with the path.
func (s *Program) Label() string { return "program " + s.Path }

// Check returns an error if the program is missing, is not executable, or can be changed by users other than root. It
// is an error and not a Change because no step installs the program. A missing program is no error if packages are
// about to be installed: one of them may have it.
func (s *Program) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	info, err := h.Stat(s.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(w.Touched([]string{dpkgStatus})) > 0:
		return Change{Action: Create, Kind: "program", Name: s.Path, Note: "comes with a package"}, nil
	case errors.Is(err, fs.ErrNotExist):
		return Change{}, fmt.Errorf("%s does not exist, but %s needs it: install the program on the machine first",
			s.Path, s.For)
	case err != nil:
		return Change{}, err
	case info.Mode.IsDir() || info.Target == "" && info.Mode.Perm()&0o111 == 0:
		return Change{}, fmt.Errorf("%s is not an executable file, but %s needs it: run chmod 755", s.Path, s.For)
	case info.UID != 0 || info.Target == "" && info.Mode.Perm()&0o022 != 0:
		return Change{}, fmt.Errorf("users other than root can write %s, which the kubelet runs as root: "+
			"run chown root and chmod 755", s.Path)
	}
	return Change{}, nil
}

// Apply returns an error, because it is called only if no package has installed the program.
func (s *Program) Apply(context.Context, host.Host, *Walk) error {
	return fmt.Errorf("%s is not there, and %s needs it: none of the packages has brought it", s.Path, s.For)
}
