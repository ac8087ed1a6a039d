package step

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"clusterctl/provision/host"
)

// Binary is a program, which is sent if a file with its digest is missing, and a link to it.
type Binary struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // SHA-256, hex
	Size   int64  `json:"size"`
	Link   string `json:"link"`
}

// Label names the program.
func (s *Binary) Label() string { return "binary " + s.Name }

// Target returns the path of the program.
func (s *Binary) Target() string { return path.Join(host.LibraryDir, s.Digest, s.Name) }

// Check checks the program and the link.
func (s *Binary) Check(ctx context.Context, h host.Host, w *Walk) (Change, error) {
	c := Change{Kind: "binary", Name: s.Name}
	link, err := (&Symlink{Path: s.Link, Target: s.Target()}).Check(ctx, h, w)
	if err != nil {
		return Change{}, err
	}
	c.Action = link.Action
	info, err := h.Stat(s.Target())
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && info.Size != s.Size:
		c.Needs, c.Bytes = s.Digest, s.Size
		if c.Action == "" {
			c.Action = Create
		}
	case err != nil:
		return Change{}, err
	}
	if c.Action != "" {
		return c, nil
	}
	for _, p := range s.ownedPaths() {
		info, err := h.Stat(p)
		if err != nil {
			return Change{}, err
		}
		if note := programPermissions(info); note != "" {
			c.Action, c.Note = Update, p+": "+note
			return c, nil
		}
	}
	return Change{}, nil
}

// programMode is the mode of programs and their directories. Some daemons run as other users than root.
const programMode = 0o755

// programPermissions returns how a program or its directory differs from programMode. A directory that an administrator
// has replaced by a link is not checked.
func programPermissions(info host.Info) string {
	if info.Mode&fs.ModeSymlink != 0 {
		return ""
	}
	return permissions(info, programMode)
}

// ownedPaths returns the program and its parent directories that belong to clusterctl.
func (s *Binary) ownedPaths() []string {
	return []string{host.LibraryDir, path.Dir(s.Target()), s.Target()}
}

// Apply replaces the link. The program was sent before.
func (s *Binary) Apply(_ context.Context, h host.Host, _ *Walk) error {
	if _, err := h.Stat(s.Target()); err != nil {
		return fmt.Errorf("%s was not sent: %w", s.Name, err)
	}
	for _, p := range s.ownedPaths() {
		info, err := h.Stat(p)
		if err != nil {
			return err
		}
		if programPermissions(info) == "" {
			continue
		}
		if err := h.Chmod(p, programMode, 0, 0); err != nil {
			return err
		}
	}
	return h.Symlink(s.Target(), s.Link)
}

// Image is a container image that is imported into the runtime from an archive.
type Image struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest"` // digest of the archive
	Size      int64  `json:"size"`
}

// Label names the image.
func (s *Image) Label() string { return "image " + s.Reference }

func (s *Image) archive() string { return path.Join(host.LibraryDir, s.Digest, "image.tar") }

// Check asks the runtime for the image.
func (s *Image) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	isPresent, err := h.HasImage(ctx, s.Reference)
	if err != nil || isPresent {
		return Change{}, err
	}
	c := Change{Action: Create, Kind: "image", Name: s.Reference}
	if _, err := h.Stat(s.archive()); err != nil {
		c.Needs, c.Bytes = s.Digest, s.Size
	}
	return c, nil
}

// Apply imports the archive and deletes it.
func (s *Image) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	f, err := h.Open(s.archive())
	if err != nil {
		return fmt.Errorf("the archive of %s was not sent: %w", s.Reference, err)
	}
	defer func() { _ = f.Close() }()
	if err := h.ImportImage(ctx, s.Reference, f); err != nil {
		return err
	}
	return h.RemoveAll(path.Dir(s.archive()))
}
