package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// isWindowClosed reports whether upgrades and reboots must wait because their window is closed.
func (p *Prepared) isWindowClosed() bool {
	w := p.engine.Config.System.Window
	return w != nil && !w.IsOpen(p.engine.now())
}

// windowLines returns a line for the plan if upgrades and reboots must wait for their window.
func (p *Prepared) windowLines() []string {
	s := p.engine.Config.System
	if p.engine.IsDestroy || !s.HasMaintenance() || !p.isWindowClosed() {
		return nil
	}
	return []string{
		fmt.Sprintf(
			"upgrades and reboots of machines are not looked at: their window opens %s.",
			s.Window.NextOpening(p.engine.now()).Format("Mon 2006-01-02 15:04 MST"),
		),
	}
}

// isSystemChange reports whether a change takes its whole machine out of service.
func isSystemChange(c step.Change) bool {
	return c.Kind == step.KindUpgrade || c.Kind == step.KindReboot
}

// recheckWindow checks a machine again without upgrades and reboots if their window has closed before the machine's
// change. Other changes are still made.
func (p *Prepared) recheckWindow(ctx context.Context, m *session.Machine) error {
	if !slices.ContainsFunc(m.Changes, isSystemChange) || !p.isWindowClosed() {
		return nil
	}
	p.session.Report(
		report.Event{
			Kind:    report.Note,
			Machine: m.Address,
			Message: "its system stays as it is: the window for upgrades and reboots has closed meanwhile",
		},
	)
	return p.session.Check(ctx, m)
}

// rebootTimeout is how long a machine may take to come back after a reboot.
const rebootTimeout = 10 * time.Minute

// mayHaveRebooted reports whether the connection may have been lost because this run rebooted the machine.
func (p *Prepared) mayHaveRebooted(m *session.Machine) bool {
	return p.engine.Config.System.Reboot && slices.ContainsFunc(m.Changes, isSystemChange)
}

// awaitReboot waits until a machine has rebooted, and checks it again.
func (p *Prepared) awaitReboot(ctx context.Context, m *session.Machine) error {
	p.session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "reboots"})
	was := m.Facts.Boot
	_ = m.Agent.Close()
	ctx, cancel := context.WithTimeout(ctx, rebootTimeout)
	defer cancel()
	tick := time.NewTicker(rebootInterval)
	defer tick.Stop()
	last := errors.New("it goes on as before")
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf(
				"it was told to reboot and is not back %s later: see to its console. Last: %w",
				rebootTimeout,
				last,
			)
		case <-tick.C:
		}
		err := p.session.Connect(ctx, m)
		switch {
		case err != nil:
			last = err
			continue
		case m.Facts.Boot == was:
			_ = m.Agent.Close() // it has not shut down yet
			continue
		}
		p.session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "is back"})
		if err := p.session.Check(ctx, m); err != nil {
			return err
		}
		return p.session.SendWithRetry(ctx, m)
	}
}

// rebootInterval is the interval at which a rebooting machine is tried.
const rebootInterval = time.Second

// rebootLine describes how a change of the system affects the machine.
func (p *Prepared) rebootLine(changes []step.Change) string {
	switch {
	case slices.ContainsFunc(changes, func(c step.Change) bool { return c.Kind == step.KindReboot }):
		return "reboot"
	case p.engine.Config.System.Reboot:
		return "upgrade packages, and reboot if these ask for it"
	}
	return "upgrade packages"
}

// pause waits for the configured time, so that the user can observe the result of a change before the next machine
// changes.
func (p *Prepared) pause(ctx context.Context, m *session.Machine) error {
	d := p.engine.Config.Roll.Pause
	if d == 0 {
		return nil
	}
	p.session.Report(
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
