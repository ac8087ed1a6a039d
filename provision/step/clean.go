package step

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"clusterctl/provision/host"
)

// Sysctls is the directory in which the original values of changed kernel settings are saved, one file each.
const Sysctls = "/var/lib/clusterctl/sysctl"

// saveSysctl saves the present value of a setting, unless one is saved already. It ignores settings that the kernel
// does not have.
func saveSysctl(h host.Host, name string) error {
	kept := path.Join(Sysctls, name)
	if _, err := h.Stat(kept); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := h.ReadFile((&Sysctl{Name: name}).path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return h.WriteFile(kept, bytes.NewReader(text), 0o644, 0, 0)
}

// SavedSysctl saves the value of a kernel setting before a unit is first started that changes it.
type SavedSysctl struct {
	Name   string `json:"name"`
	Unless string `json:"unless"` // name of the unit
}

// Label names the setting.
func (s *SavedSysctl) Label() string { return "former sysctl " + s.Name }

// Check reports a change unless the value is saved, or the unit has been started before.
func (s *SavedSysctl) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	for _, file := range []string{path.Join(Sysctls, s.Name), path.Join(MarkerDir, s.Unless)} {
		if _, err := h.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return Change{}, err
		}
	}
	if _, err := h.Stat((&Sysctl{Name: s.Name}).path()); err != nil {
		return Change{}, nil // the kernel does not have the setting
	}
	return Change{Action: Create, Kind: "file", Name: path.Join(Sysctls, s.Name)}, nil
}

// Apply saves the value.
func (s *SavedSysctl) Apply(_ context.Context, h host.Host, _ *Walk) error {
	return saveSysctl(h, s.Name)
}

// RestoreSysctls restores the original values of kernel settings. It leaves a setting unchanged if its value is no
// longer the one in Changed, because another program or user has changed it.
type RestoreSysctls struct {
	Changed map[string]string `json:"given"`
}

// Label returns a fixed text.
func (s *RestoreSysctls) Label() string { return "former kernel settings" }

// Check reports the settings to restore.
func (s *RestoreSysctls) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	former, err := s.originalValues(h)
	if err != nil || len(former) == 0 {
		return Change{}, err
	}
	c := Change{Action: Update, Kind: "sysctl", Note: "what it was before"}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(former)) {
		names = append(names, name)
		c.Diff = append(c.Diff, "- "+name+" = "+s.Changed[name], "+ "+name+" = "+former[name])
	}
	c.Name = strings.Join(names, ", ")
	return c, nil
}

// originalValues returns the settings to restore, with their original values.
func (s *RestoreSysctls) originalValues(h host.Host) (map[string]string, error) {
	names, err := h.List(Sysctls)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	former := map[string]string{}
	for _, name := range names {
		before, err := h.ReadFile(path.Join(Sysctls, name))
		if err != nil {
			return nil, err
		}
		now, err := h.ReadFile((&Sysctl{Name: name}).path())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if after := strings.TrimSpace(string(now)); err == nil && after == s.Changed[name] &&
			after != strings.TrimSpace(string(before)) {
			former[name] = strings.TrimSpace(string(before))
		}
	}
	return former, nil
}

// Apply restores the settings.
func (s *RestoreSysctls) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	former, err := s.originalValues(h)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(former)) {
		if err := setSysctl(ctx, h, name, former[name]); err != nil {
			return err
		}
	}
	return nil
}

// RemoveCgroups removes the pods' cgroups, which the kubelet leaves empty when its pods have ended.
type RemoveCgroups struct {
	Name string `json:"name"` // name of their common parent
}

// cgroupRoot is the mount point of the cgroup file system. With cgroup v1 it has a directory for each controller.
const cgroupRoot = "/sys/fs/cgroup"

// Label returns a fixed text.
func (s *RemoveCgroups) Label() string { return "no control groups of pods" }

func (s *RemoveCgroups) findCgroups(h host.Host) (paths []string, err error) {
	names, err := h.List(cgroupRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, candidate := range append([]string{""}, names...) {
		at := path.Join(cgroupRoot, candidate, s.Name)
		if info, err := h.Stat(path.Join(cgroupRoot, candidate)); err != nil ||
			!info.Mode.IsDir() { // a link is another name of a controller
			continue
		}
		if info, err := h.Stat(at); err == nil && info.Mode.IsDir() {
			paths = append(paths, at)
		}
	}
	return paths, nil
}

// Check looks for the parent cgroup.
func (s *RemoveCgroups) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	paths, err := s.findCgroups(h)
	if err != nil || len(paths) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "cgroup", Name: s.Name}, nil
}

// Apply removes the cgroups, children first.
func (s *RemoveCgroups) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	paths, err := s.findCgroups(h)
	if err != nil {
		return err
	}
	for _, at := range paths {
		if _, err := h.Run(ctx, "find", at, "-depth", "-type", "d", "-delete"); err != nil {
			return err
		}
	}
	return nil
}

// RemoveFiles removes files with a name prefix from a directory.
type RemoveFiles struct {
	Dir    string `json:"dir"`
	Prefix string `json:"prefix"`
}

// Label names the files.
func (s *RemoveFiles) Label() string { return "no " + s.Dir + "/" + s.Prefix + "*" }

func (s *RemoveFiles) findFiles(h host.Host) (paths []string, err error) {
	names, err := h.List(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, n := range names {
		if strings.HasPrefix(n, s.Prefix) {
			paths = append(paths, path.Join(s.Dir, n))
		}
	}
	return paths, err
}

// Check looks for the files.
func (s *RemoveFiles) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	paths, err := s.findFiles(h)
	if err != nil || len(paths) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "file", Name: s.Dir + "/" + s.Prefix + "*"}, nil
}

// Apply removes the files.
func (s *RemoveFiles) Apply(_ context.Context, h host.Host, _ *Walk) error {
	paths, err := s.findFiles(h)
	for _, p := range paths {
		err = errors.Join(err, h.RemoveAll(p))
	}
	return err
}

// RemoveEmpty removes a directory if it is empty and not a mount point.
type RemoveEmpty struct {
	Path string `json:"path"`
}

// Label names the directory.
func (s *RemoveEmpty) Label() string { return "no empty " + s.Path }

// Check finds an empty directory. Files that earlier steps of the walk remove still exist while planning, so the change
// may appear only in Apply.
func (s *RemoveEmpty) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	names, err := h.List(s.Path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(names) > 0 {
		return Change{}, nil
	}
	if err != nil {
		return Change{}, err
	}
	if info, err := h.Stat(s.Path); err != nil || !info.Mode.IsDir() {
		return Change{}, err
	}
	mounts, err := h.Mounts(s.Path)
	if err != nil || slices.Contains(mounts, s.Path) {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "directory", Name: s.Path, Note: "empty"}, nil
}

// Apply removes the directory.
func (s *RemoveEmpty) Apply(_ context.Context, h host.Host, _ *Walk) error {
	return h.RemoveAll(s.Path)
}
