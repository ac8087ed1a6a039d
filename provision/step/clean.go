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

// Sysctls is where it is written down what kernel settings were before they were changed, a file each.
const Sysctls = "/var/lib/clusterctl/sysctl"

// noteSysctl writes down what a setting is, unless that was done before. One that the kernel does not have is nothing
// to write down.
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

// NotedSysctl is that it is written down what a kernel setting was before a unit was first started, with which it
// changes.
type NotedSysctl struct {
	Name   string `json:"name"`
	Unless string `json:"unless"` // the unit
}

// Label names the setting.
func (s *NotedSysctl) Label() string { return "former sysctl " + s.Name }

// Check looks whether it is written down, or too late for that.
func (s *NotedSysctl) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	for _, there := range []string{path.Join(Sysctls, s.Name), path.Join(Markers, s.Unless)} {
		if _, err := h.Stat(there); !errors.Is(err, fs.ErrNotExist) {
			return Change{}, err
		}
	}
	if _, err := h.Stat((&Sysctl{Name: s.Name}).path()); err != nil {
		return Change{}, nil // the kernel does not have it
	}
	return Change{Action: Create, Kind: "file", Name: path.Join(Sysctls, s.Name)}, nil
}

// Apply writes it down.
func (s *NotedSysctl) Apply(_ context.Context, h host.Host, _ *Walk) error {
	return noteSysctl(h, s.Name)
}

// FormerSysctls is that kernel settings are what they were before they were changed from here. One that has another
// value by now than the one that it was given is somebody else's, and stays.
type FormerSysctls struct {
	Given map[string]string `json:"given"`
}

// Label says so.
func (s *FormerSysctls) Label() string { return "former kernel settings" }

// Check compares them.
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

// former are the settings that are to be put back, with the values that they had.
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

// Apply sets them.
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

// NoCgroups is that there are no control groups of pods, which the kubelet leaves empty when its pods have ended.
type NoCgroups struct {
	Name string `json:"name"` // of the one above all of them
}

// cgroups is where they are: below it with the unified hierarchy, below each controller's with the former ones.
const cgroups = "/sys/fs/cgroup"

// Label says so.
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
			!info.Mode.IsDir() { // a link is a controller's other name
			continue
		}
		if info, err := h.Stat(at); err == nil && info.Mode.IsDir() {
			paths = append(paths, at)
		}
	}
	return paths, nil
}

// Check looks for them.
func (s *NoCgroups) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	paths, err := s.found(h)
	if err != nil || len(paths) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "cgroup", Name: s.Name}, nil
}

// Apply removes them from the leaves up.
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

// NoFiles is that a directory has no files whose names begin in a way.
type NoFiles struct {
	Dir    string `json:"dir"`
	Prefix string `json:"prefix"`
}

// Label names them.
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

// Check looks for them.
func (s *NoFiles) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	paths, err := s.found(h)
	if err != nil || len(paths) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "file", Name: s.Dir + "/" + s.Prefix + "*"}, nil
}

// Apply removes them.
func (s *NoFiles) Apply(_ context.Context, h host.Host, _ *Walk) error {
	paths, err := s.found(h)
	for _, p := range paths {
		err = errors.Join(err, h.RemoveAll(p))
	}
	return err
}

// Unused is that a directory is not there when nothing is in it. One that is a disk of its own stays.
type Unused struct {
	Path string `json:"path"`
}

// Label names it.
func (s *Unused) Label() string { return "no empty " + s.Path }

// Check looks into it. What is taken out of it in the same walk is still there while planning, so that it is found only
// when applying.
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

// Apply removes it.
func (s *Unused) Apply(_ context.Context, h host.Host, _ *Walk) error { return h.RemoveAll(s.Path) }
