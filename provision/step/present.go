package step

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"clusterctl/provision/host"
)

// Present checks whether a file was sent. There is nothing to apply.
type Present struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Label names the file.
func (s *Present) Label() string { return "presence of " + s.Path }

// Check checks the file and its size.
func (s *Present) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	info, err := h.Stat(s.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && info.Size != s.Size:
		return Change{Action: Create, Kind: "file", Name: s.Path}, nil
	case err != nil:
		return Change{}, err
	}
	return Change{}, nil
}

// Apply returns an error, because only sending creates the file.
func (s *Present) Apply(context.Context, host.Host, *Walk) error {
	return fmt.Errorf("%s was not sent", s.Path)
}

// Stopped stops a unit. Another step starts it again later.
type Stopped struct {
	Unit string `json:"unit"`
}

// Label names the unit.
func (s *Stopped) Label() string { return "rest of " + s.Unit }

// Check asks systemd for the unit's state.
func (s *Stopped) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	u, err := h.Unit(ctx, s.Unit)
	if err != nil || u.Active == "" || u.Active == "inactive" || u.Active == "failed" {
		return Change{}, err
	}
	return Change{Action: Update, Kind: "unit", Name: s.Unit, Note: "stop"}, nil
}

// Apply stops the unit.
func (s *Stopped) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return h.Stop(ctx, s.Unit)
}

// Aside moves a file or directory to another path.
type Aside struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Label names the original path.
func (s *Aside) Label() string { return "nothing at " + s.From }

// Check checks whether the original path exists.
func (s *Aside) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	_, err := h.Stat(s.From)
	if errors.Is(err, fs.ErrNotExist) {
		return Change{}, nil
	}
	if err != nil {
		return Change{}, err
	}
	return Change{Action: Update, Kind: "directory", Name: s.From, Note: "moved to " + s.To}, nil
}

// Apply moves it within its file system.
func (s *Aside) Apply(_ context.Context, h host.Host, _ *Walk) error { return h.Rename(s.From, s.To) }
