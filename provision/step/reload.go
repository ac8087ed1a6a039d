package step

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"clusterctl/provision/host"
)

// AwaitReload waits until a server uses a file that it reloads by itself. Nothing is restarted for it. A file that the
// server cannot use is detected here instead of at the next restart.
type AwaitReload struct {
	Path string `json:"path"` // path of the file
	URL  string `json:"url"`  // answers when the content of the file is in use
	Unit string `json:"unit"` // whose journal explains why it is not
	host.Client
}

const (
	// reloadTimeout is how long a server may take to start and to load the file.
	reloadTimeout = 20 * time.Second
	// refusalTimeout is how long a server may answer that it does not use the file. It reads the file before each
	// answer.
	refusalTimeout = 3 * time.Second
)

// Label names the file.
func (s *AwaitReload) Label() string { return "use of " + s.Path }

// Check asks the server whether it uses the file. It reports a change without asking if the file changes in this walk,
// and none if the file does not exist yet.
func (s *AwaitReload) Check(ctx context.Context, h host.Host, w *Walk) (Change, error) {
	if _, err := h.Stat(s.Path); errors.Is(err, fs.ErrNotExist) {
		return Change{}, nil
	}
	if len(w.Touched([]string{s.Path})) > 0 {
		return Change{Action: Update, Kind: "setting", Name: s.Path, Note: s.Unit + " reads it by itself"}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return failedChange("setting", s.Path, h.CheckURL(ctx, s.URL, s.Client)), nil
}

// Apply waits until the server uses it.
func (s *AwaitReload) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	var refused time.Time // first of the last refusals
	err := retryUntil(ctx, func() error {
		err := h.CheckURL(ctx, s.URL, s.Client)
		var status host.StatusError
		switch {
		case !errors.As(err, &status) || status != http.StatusInternalServerError:
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) > refusalTimeout:
			cancel()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s does not use %s and keeps the former configuration (journalctl -u %s says why): %w",
			s.Unit, s.Path, s.Unit, err)
	}
	return nil
}
