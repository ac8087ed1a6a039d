package step

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"clusterctl/provision/host"
)

// Present is that a file has been sent. It is only looked for.
type Present struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Label names the file.
func (s *Present) Label() string { return "presence of " + s.Path }

// Check looks for it.
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

// Apply says that it is not there: it comes by being sent.
func (s *Present) Apply(context.Context, host.Host, *Walk) error {
	return fmt.Errorf("%s was not sent", s.Path)
}

// Stopped is that a unit does not run. It is started again by whoever starts it.
type Stopped struct {
	Unit string `json:"unit"`
}

// Label names the unit.
func (s *Stopped) Label() string { return "rest of " + s.Unit }

// Check asks systemd.
func (s *Stopped) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	u, err := h.Unit(ctx, s.Unit)
	if err != nil || u.Active == "" || u.Active == "inactive" || u.Active == "failed" {
		return Change{}, err
	}
	return Change{Action: Update, Kind: "unit", Name: s.Unit, Note: "stop"}, nil
}

// Apply stops it.
func (s *Stopped) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return h.Stop(ctx, s.Unit)
}

// Aside is that a file or folder is not where it was, but where nobody takes it for what it was.
type Aside struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Label names it.
func (s *Aside) Label() string { return "nothing at " + s.From }

// Check looks for it.
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

// Apply moves it, within its file system.
func (s *Aside) Apply(_ context.Context, h host.Host, _ *Walk) error { return h.Rename(s.From, s.To) }
