package step

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"clusterctl/provision/host"
)

// File is a file with its content, owned by root.
type File struct {
	Path    string      `json:"path"`
	Content []byte      `json:"content"`
	Mode    fs.FileMode `json:"mode"` // zero means 0644
	Secret  bool        `json:"secret,omitempty"`
}

// Label names the file.
func (s *File) Label() string { return "file " + s.Path }

func (s *File) mode() fs.FileMode {
	if s.Mode == 0 {
		return 0o644
	}
	return s.Mode
}

// Check compares content, permissions and owner.
func (s *File) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	c := Change{Kind: "file", Name: s.Path}
	info, err := h.Stat(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		w.Touch(s.Path)
		c.Action = Create
		return c, nil
	}
	if err != nil {
		return Change{}, err
	}
	if !info.Mode.IsRegular() {
		w.Touch(s.Path)
		c.Action, c.Note = Update, "is not a regular file"
		return c, nil
	}
	old, err := h.ReadFile(s.Path)
	if err != nil {
		return Change{}, err
	}
	if !bytes.Equal(old, s.Content) {
		w.Touch(s.Path)
		c.Action = Update
		if s.Secret {
			c.Diff = []string{"(content is not shown)"}
		} else {
			c.Diff = Lines(string(old), string(s.Content))
		}
		return c, nil
	}
	if note := permissions(info, s.mode()); note != "" {
		c.Action, c.Note = Update, note
		return c, nil
	}
	return Change{}, nil
}

func permissions(info host.Info, mode fs.FileMode) string {
	switch {
	case info.Mode.Perm() != mode.Perm():
		return fmt.Sprintf("mode %04o, should be %04o", info.Mode.Perm(), mode.Perm())
	case info.UID != 0 || info.GID != 0:
		return fmt.Sprintf("belongs to %d:%d, should be root's", info.UID, info.GID)
	}
	return ""
}

// Apply writes the file.
func (s *File) Apply(_ context.Context, h host.Host, _ *Walk) error {
	if info, err := h.Stat(s.Path); err == nil && info.Mode.IsDir() {
		return fmt.Errorf("%s is a directory; move it away", s.Path)
	}
	return h.WriteFile(s.Path, bytes.NewReader(s.Content), s.mode(), 0, 0)
}

// Directory is a directory.
type Directory struct {
	Path string      `json:"path"`
	Mode fs.FileMode `json:"mode"` // zero means 0755
}

// Label names the directory.
func (s *Directory) Label() string { return "directory " + s.Path }

func (s *Directory) mode() fs.FileMode {
	if s.Mode == 0 {
		return 0o755
	}
	return s.Mode
}

// Check checks the directory.
func (s *Directory) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	c := Change{Kind: "directory", Name: s.Path}
	info, err := h.Stat(s.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Action = Create
		return c, nil
	case err != nil:
		return Change{}, err
	case info.Mode&fs.ModeSymlink != 0: // an administrator has replaced it by a link
		return Change{}, nil
	case !info.Mode.IsDir():
		return Change{}, fmt.Errorf("%s is not a directory; move it away", s.Path)
	case info.Mode.Perm() != s.mode().Perm():
		c.Action, c.Note = Update, fmt.Sprintf("mode %04o, should be %04o", info.Mode.Perm(), s.mode().Perm())
		return c, nil
	}
	return Change{}, nil
}

// Apply creates the directory.
func (s *Directory) Apply(_ context.Context, h host.Host, _ *Walk) error {
	return h.Mkdir(s.Path, s.mode())
}

// Symlink is a symbolic link.
type Symlink struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Label names the link.
func (s *Symlink) Label() string { return "link " + s.Path }

// Check compares the target.
func (s *Symlink) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	c := Change{Kind: "link", Name: s.Path}
	info, err := h.Stat(s.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Action = Create
		w.Restore(s.Path, s.Target)
	case err != nil:
		return Change{}, err
	case info.Target != s.Target:
		c.Action, c.Diff = Update, []string{"- " + info.Target, "+ " + s.Target}
	default:
		return Change{}, nil
	}
	w.Touch(s.Path)
	return c, nil
}

// Apply creates or replaces the link.
func (s *Symlink) Apply(_ context.Context, h host.Host, _ *Walk) error {
	return h.Symlink(s.Target, s.Path)
}

// Absent removes what is at a path.
type Absent struct {
	Path string `json:"path"`
	// LinkInto, if set, restricts the removal to links to targets below this directory. Other files belong to someone
	// else.
	LinkInto string `json:"linkInto,omitempty"`
	// NoCopy prevents that an update saves the file for a roll-back, so that no copy stays on the machine.
	NoCopy bool `json:"noCopy,omitempty"`
	// Written, if set, is the beginning of files that clusterctl wrote. Other files are kept.
	Written string `json:"written,omitempty"`
}

// Label names the path.
func (s *Absent) Label() string { return "no " + s.Path }

// Check checks whether the path exists.
func (s *Absent) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	info, err := h.Stat(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return Change{}, nil
	}
	if err != nil {
		return Change{}, err
	}
	if s.LinkInto != "" && !strings.HasPrefix(info.Target, s.LinkInto+"/") {
		return Change{}, nil
	}
	if s.Written != "" {
		if text, err := h.ReadFile(s.Path); err != nil || !strings.HasPrefix(string(text), s.Written) {
			return Change{}, err
		}
	}
	w.Touch(s.Path)
	return Change{Action: Delete, Kind: "file", Name: s.Path}, nil
}

// Apply removes the path.
func (s *Absent) Apply(_ context.Context, h host.Host, _ *Walk) error { return h.RemoveAll(s.Path) }

// Empty removes the content of a directory. It keeps the directory, which may be a mount point.
type Empty struct {
	Path string `json:"path"`
}

// Label names the directory.
func (s *Empty) Label() string { return "nothing in " + s.Path }

// Check checks whether the directory is empty.
func (s *Empty) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	names, err := h.List(s.Path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0 {
		return Change{}, nil
	}
	if err != nil {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "file", Name: s.Path + "/*"}, nil
}

// Apply removes the content.
func (s *Empty) Apply(_ context.Context, h host.Host, _ *Walk) error {
	names, err := h.List(s.Path)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := h.RemoveAll(s.Path + "/" + n); err != nil {
			return err
		}
	}
	return nil
}
