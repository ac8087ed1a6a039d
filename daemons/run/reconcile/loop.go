// Package reconcile runs the loops of daemons that keep something on their machine, such as packet-filter rules, equal
// to what the objects of the API require. It decides when a loop runs. What the loop computes and writes is the
// daemon's.
package reconcile

import (
	"context"
	"log/slog"
	"time"
)

const (
	minRetry = 200 * time.Millisecond
	maxRetry = 10 * time.Second
)

// Loop calls Sync after changes, at intervals, and again after a failure. All its functions run in one goroutine.
type Loop struct {
	Log     *slog.Logger
	Action  string // what Sync does, for the log: "set up the pod network"
	Changes Signal // wakes the loop

	// Sync brings the machine up to date. After an error it is called again: after 200 ms at first, then after twice
	// the previous pause, and at most after 10 s. A change calls it earlier.
	Sync func(context.Context) error

	// CheckInterval is how often IsIntact is called. Without IsIntact, Sync is called instead.
	CheckInterval time.Duration
	// IsIntact reports whether the machine still has what Sync wrote. If not, Sync is called. With whole, it compares
	// everything instead of only what is cheap to compare. Optional.
	IsIntact func(whole bool) bool
	// CompareInterval is how often IsIntact is called with whole.
	CompareInterval time.Duration

	// OnChange is called when a change woke the loop. Optional.
	OnChange func()
	// GatherTime is how long the loop waits after a change, so that one Sync includes the changes that follow it.
	GatherTime time.Duration
}

// Run calls Sync at once, and then as the fields of the loop require. It returns when ctx ends.
func (l *Loop) Run(ctx context.Context) {
	check := time.NewTicker(l.CheckInterval)
	defer check.Stop()
	retry := minRetry
	var again <-chan time.Time
	var compared time.Time
	l.Changes.Wake()
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			whole := time.Since(compared) >= l.CompareInterval
			if whole {
				compared = time.Now()
			}
			if l.IsIntact != nil && l.IsIntact(whole) {
				continue
			}
		case <-again:
		case <-l.Changes:
			if !l.gather(ctx) {
				return
			}
		}
		again = nil
		if err := l.Sync(ctx); ctx.Err() != nil {
			return
		} else if err != nil {
			l.Log.Warn(l.Action, "error", err)
			again = time.After(retry)
			retry = min(2*retry, maxRetry)
		} else {
			retry = minRetry
		}
	}
}

// gather waits for further changes. It reports whether ctx lasts.
func (l *Loop) gather(ctx context.Context) bool {
	if l.OnChange != nil {
		l.OnChange()
	}
	if l.GatherTime == 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(l.GatherTime):
	}
	select {
	case <-l.Changes: // the next Sync includes it
	default:
	}
	return true
}
