package roll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
)

// recheckWindow checks a machine again without upgrades and reboots if their window has closed before the machine's
// change. Other changes are still made.
func (r *Roller) recheckWindow(ctx context.Context, m *session.Machine) error {
	if !slices.ContainsFunc(m.Changes, decide.IsSystemChange) || !r.Situation.IsWindowClosed() {
		return nil
	}
	r.Session.Report(
		report.Event{
			Kind:    report.Note,
			Machine: m.Address,
			Message: "its system stays as it is: the window for upgrades and reboots has closed meanwhile",
		},
	)
	return r.Session.Check(ctx, m)
}

// rebootTimeout is how long a machine may take to come back after a reboot.
const rebootTimeout = 10 * time.Minute

// awaitReboot waits until a machine has rebooted, and checks it again.
func (r *Roller) awaitReboot(ctx context.Context, m *session.Machine) error {
	r.Session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "reboots"})
	before := m.Facts.Boot
	_ = m.Agent.Close()
	ctx, cancel := context.WithTimeout(ctx, rebootTimeout)
	defer cancel()
	tick := time.NewTicker(rebootInterval)
	defer tick.Stop()
	last := errors.New("it goes on as before")
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("it was asked to reboot and is not back %s later: check its console. Last: %w",
				rebootTimeout, last)
		case <-tick.C:
		}
		err := r.Session.Connect(ctx, m)
		switch {
		case err != nil:
			last = err
			continue
		case m.Facts.Boot == before:
			_ = m.Agent.Close() // it has not shut down yet
			continue
		}
		r.Session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "is back"})
		if err := r.Session.Check(ctx, m); err != nil {
			return err
		}
		return r.Session.SendWithRetry(ctx, m)
	}
}

// rebootInterval is the interval at which a rebooting machine is tried.
const rebootInterval = time.Second

// pause waits for the configured time, so that the user can observe the result of a change before the next machine
// changes.
func (r *Roller) pause(ctx context.Context, m *session.Machine) error {
	d := r.Situation.Config.Roll.Pause
	if d == 0 {
		return nil
	}
	r.Session.Report(
		report.Event{
			Kind:    report.Note,
			Machine: m.Address,
			Message: fmt.Sprintf("is done; the next machine's turn is in %s", d),
		},
	)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
