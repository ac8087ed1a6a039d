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

// noteSysctl saves the present value of a setting, unless one is saved already. It ignores settings that the kernel
// does not have.
func noteSysctl(h host.Host, name string) error {
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

// NotedSysctl saves the value of a kernel setting before a unit is first started that changes it.
type NotedSysctl struct {
	Name   string `json:"name"`
	Unless string `json:"unless"` // name of the unit
}

// Label names the setting.
func (s *NotedSysctl) Label() string { return "former sysctl " + s.Name }

// Check reports a change unless the value is saved, or the unit has been started before.
func (s *NotedSysctl) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	for _, there := range []string{path.Join(Sysctls, s.Name), path.Join(Markers, s.Unless)} {
		if _, err := h.Stat(there); !errors.Is(err, fs.ErrNotExist) {
			return Change{}, err
		}
	}
	if _, err := h.Stat((&Sysctl{Name: s.Name}).path()); err != nil {
		return Change{}, nil // the kernel does not have the setting
	}
	return Change{Action: Create, Kind: "file", Name: path.Join(Sysctls, s.Name)}, nil
}

// Apply saves the value.
func (s *NotedSysctl) Apply(_ context.Context, h host.Host, _ *Walk) error {
	return noteSysctl(h, s.Name)
}

// FormerSysctls restores the original values of kernel settings. It leaves a setting alone if its value is no longer
// the one in Given, because someone else has changed it.
type FormerSysctls struct {
	Given map[string]string `json:"given"`
}

// Label returns a fixed text.
func (s *FormerSysctls) Label() string { return "former kernel settings" }

// Check reports the settings to restore.
func (s *FormerSysctls) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	former, err := s.former(h)
	if err != nil || len(former) == 0 {
		return Change{}, err
	}
	c := Change{Action: Update, Kind: "sysctl", Note: "what it was before"}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(former)) {
		names = append(names, name)
		c.Diff = append(c.Diff, "- "+name+" = "+s.Given[name], "+ "+name+" = "+former[name])
	}
	c.Name = strings.Join(names, ", ")
	return c, nil
}

// former returns the settings to restore, with their original values.
func (s *FormerSysctls) former(h host.Host) (map[string]string, error) {
	names, err := h.List(Sysctls)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	former := map[string]string{}
	for _, name := range names {
		was, err := h.ReadFile(path.Join(Sysctls, name))
		if err != nil {
			return nil, err
		}
		now, err := h.ReadFile((&Sysctl{Name: name}).path())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if is := strings.TrimSpace(string(now)); err == nil && is == s.Given[name] &&
			is != strings.TrimSpace(string(was)) {
			former[name] = strings.TrimSpace(string(was))
		}
	}
	return former, nil
}

// Apply restores the settings.
func (s *FormerSysctls) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	former, err := s.former(h)
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

// NoCgroups removes the pods' cgroups, which the kubelet leaves empty when its pods have ended.
type NoCgroups struct {
	Name string `json:"name"` // name of their common parent
}

// cgroups is the mount point of the cgroup file system. With cgroup v1 it has a directory for each controller.
const cgroups = "/sys/fs/cgroup"

// Label returns a fixed text.
func (s *NoCgroups) Label() string { return "no control groups of pods" }

func (s *NoCgroups) found(h host.Host) (paths []string, err error) {
	names, err := h.List(cgroups)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, candidate := range append([]string{""}, names...) {
		at := path.Join(cgroups, candidate, s.Name)
		if info, err := h.Stat(path.Join(cgroups, candidate)); err != nil ||
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
func (s *NoCgroups) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	paths, err := s.found(h)
	if err != nil || len(paths) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "cgroup", Name: s.Name}, nil
}

// Apply removes the cgroups, children first.
func (s *NoCgroups) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	paths, err := s.found(h)
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

// NoFiles removes files with a name prefix from a directory.
type NoFiles struct {
	Dir    string `json:"dir"`
	Prefix string `json:"prefix"`
}

// Label names the files.
func (s *NoFiles) Label() string { return "no " + s.Dir + "/" + s.Prefix + "*" }

func (s *NoFiles) found(h host.Host) (paths []string, err error) {
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
func (s *NoFiles) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	paths, err := s.found(h)
	if err != nil || len(paths) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "file", Name: s.Dir + "/" + s.Prefix + "*"}, nil
}

// Apply removes the files.
func (s *NoFiles) Apply(_ context.Context, h host.Host, _ *Walk) error {
	paths, err := s.found(h)
	for _, p := range paths {
		err = errors.Join(err, h.RemoveAll(p))
	}
	return err
}

// Unused removes a directory if it is empty and not a mount point.
type Unused struct {
	Path string `json:"path"`
}

// Label names the directory.
func (s *Unused) Label() string { return "no empty " + s.Path }

// Check finds an empty directory. Files that earlier steps of the walk remove still exist while planning, so the change
// may appear only in Apply.
func (s *Unused) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
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
func (s *Unused) Apply(_ context.Context, h host.Host, _ *Walk) error { return h.RemoveAll(s.Path) }
