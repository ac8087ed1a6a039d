package step

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"clusterctl/provision/host"
)

// CheckSent checks whether a file was sent. There is nothing to apply.
type CheckSent struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Label names the file.
func (s *CheckSent) Label() string { return "presence of " + s.Path }

// Check checks the file and its size.
func (s *CheckSent) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
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
func (s *CheckSent) Apply(context.Context, host.Host, *Walk) error {
	return fmt.Errorf("%s was not sent", s.Path)
}

// StopUnit stops a unit. Another step starts it again later.
type StopUnit struct {
	Unit string `json:"unit"`
}

// Label names the unit.
func (s *StopUnit) Label() string { return "rest of " + s.Unit }

// Check asks systemd for the unit's state.
func (s *StopUnit) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	u, err := h.Unit(ctx, s.Unit)
	if err != nil || u.Active == "" || u.Active == "inactive" || u.Active == "failed" {
		return Change{}, err
	}
	return Change{Action: Update, Kind: "unit", Name: s.Unit, Note: "stop"}, nil
}

// Apply stops the unit.
func (s *StopUnit) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return h.Stop(ctx, s.Unit)
}

// MoveAside moves a file or directory to another path.
type MoveAside struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Label names the original path.
func (s *MoveAside) Label() string { return "nothing at " + s.From }

// Check checks whether the original path exists.
func (s *MoveAside) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
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
func (s *MoveAside) Apply(_ context.Context, h host.Host, _ *Walk) error {
	return h.Rename(s.From, s.To)
}
