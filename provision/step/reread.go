package step

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"clusterctl/provision/host"
)

// Reread is that a server uses a file which it reads again by itself: nothing is restarted for
// it, and one that it cannot use is found out here and not by the next restart.
type Reread struct {
	Path string `json:"path"` // of the file
	URL  string `json:"url"`  // answers that what is in the file is in use
	Unit string `json:"unit"` // whose journal says why it is not
	host.Client
}

// rereadTimeout is how long a server has to come up and take it in.
const rereadTimeout = 20 * time.Second

// Label names the file.
func (s *Reread) Label() string { return "use of " + s.Path }

// Check asks, where the file is there already and stays as it is.
func (s *Reread) Check(ctx context.Context, h host.Host, w *Walk) (Change, error) {
	if _, err := h.Stat(s.Path); errors.Is(err, fs.ErrNotExist) {
		return Change{}, nil
	}
	if len(w.Touched([]string{s.Path})) > 0 {
		return Change{Action: Update, Kind: "setting", Name: s.Path, Note: s.Unit + " reads it by itself"}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return ill("setting", s.Path, h.Answers(ctx, s.URL, s.Client)), nil
}

// Apply waits until the server uses it.
func (s *Reread) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, rereadTimeout)
	defer cancel()
	if err := until(ctx, func() error { return h.Answers(ctx, s.URL, s.Client) }); err != nil {
		return fmt.Errorf(
			"%s does not use %s and goes on with what was there before (journalctl -u %s says why): %w",
			s.Unit,
			s.Path,
			s.Unit,
			err,
		)
	}
	return nil
}
