package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"clusterctl/provision/host"
)

// HeldDaemon is a daemon that must be well.
type HeldDaemon struct {
	Unit    string `json:"unit,omitempty"`    // empty for a static pod
	Program string `json:"program,omitempty"` // the program that its process must run
	URL     string `json:"url,omitempty"`     // answers when the daemon is ready
	host.Client
}

func (d HeldDaemon) name() string {
	if d.Unit == "" {
		return d.URL
	}
	return d.Unit
}

// HoldRelease watches the daemons of a new release. Each must run exactly the given program, in one process that does
// not end, and be ready, all of them together for some time. A daemon that ends fails the release, however fast it is
// restarted.
type HoldRelease struct {
	Release  host.Release  `json:"release"`
	Units    []HeldDaemon  `json:"units"`
	Duration time.Duration `json:"for"`
	Timeout  time.Duration `json:"timeout,omitempty"` // timeout for becoming ready; zero means two minutes
}

// readyTimeout is the default timeout for becoming ready.
const readyTimeout = 2 * time.Minute

// Label names the release.
func (s *HoldRelease) Label() string { return "release " + s.Release.Version }

// Check reports a change while files of a former release are saved.
func (s *HoldRelease) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	former, err := host.ReadSavedRelease(h)
	if err != nil || former == nil && len(w.Touched([]string{host.SavedReleaseDir})) == 0 {
		return Change{}, err
	}
	return Change{
		Action: Update,
		Kind:   "release",
		Name:   s.Release.Version,
		Note:   fmt.Sprintf("has to be well for %s", s.Duration),
	}, nil
}

// Apply waits until the release is confirmed, or returns which daemon is not healthy, with the end of its journal.
func (s *HoldRelease) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return s.awaitConfirmed(ctx, h)
}

func (s *HoldRelease) awaitConfirmed(ctx context.Context, h host.Host) error {
	timeout := cmp.Or(s.Timeout, readyTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout+s.Duration)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	first := map[string]host.Unit{}
	var since time.Time
	for {
		ill, ended, err := s.findUnhealthy(ctx, h, first)
		switch {
		case ctx.Err() == nil && ended:
			return s.withJournal(ctx, h, ill, err)
		case err != nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if err == nil && time.Since(since) >= s.Duration {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			return s.withJournal(context.WithoutCancel(ctx), h, ill, fmt.Errorf("it is not well %s after its start: %w",
				timeout, err))
		}
	}
}

// findUnhealthy returns the first daemon that is not well. ended reports that it has ended since it was first seen.
func (s *HoldRelease) findUnhealthy(
	ctx context.Context,
	h host.Host,
	first map[string]host.Unit,
) (ill HeldDaemon, ended bool, err error) {
	for _, d := range s.Units {
		if d.Unit != "" {
			u, err := h.Unit(ctx, d.Unit)
			if err != nil {
				return d, false, err
			}
			before, seen := first[d.Unit]
			switch {
			case seen && (u.Active != "active" || u.Process != before.Process):
				return d, true, fmt.Errorf("it ended %s after its start", time.Since(before.Started).Round(time.Second))
			case u.Active != "active":
				return d, u.Active == "failed", fmt.Errorf("it is %s", u.Active)
			case d.Program != "" && u.Program != d.Program:
				return d, false, fmt.Errorf("it runs %s, not %s", u.Program, d.Program)
			}
			first[d.Unit] = u
		}
		if d.URL == "" {
			continue
		}
		if err := h.CheckURL(ctx, d.URL, d.Client); err != nil {
			return d, false, err
		}
	}
	return HeldDaemon{}, false, nil
}

const journalTimeout = 10 * time.Second

// withJournal returns the error of a daemon with the end of its journal.
func (s *HoldRelease) withJournal(ctx context.Context, h host.Host, d HeldDaemon, err error) error {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	if d.Unit != "" {
		if journal := h.JournalTail(ctx, d.Unit); journal != "" {
			return fmt.Errorf("%s: %w; the journal says:\n%s", d.name(), err, journal)
		}
	}
	return fmt.Errorf("%s: %w", d.name(), err)
}
