package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clusterctl/provision/step"
)

// closed reports whether upgrades and reboots have to wait for their window.
func (p *Prepared) closed() bool {
	w := p.engine.Config.System.Window
	return w != nil && !w.Open(p.engine.now())
}

// waiting says that they do.
func (p *Prepared) waiting() []string {
	s := p.engine.Config.System
	if p.engine.Destroy || !s.Kept() || !p.closed() {
		return nil
	}
	return []string{
		fmt.Sprintf(
			"upgrades and reboots of machines are not looked at: their window opens %s.",
			s.Window.Opens(p.engine.now()).Format("Mon 2006-01-02 15:04 MST"),
		),
	}
}

// ofSystem reports whether a change takes its machine as a whole out of service.
func ofSystem(c step.Change) bool { return c.Kind == step.Upgrades || c.Kind == step.Reboots }

// tooLate has a machine whose turn comes after the window has closed keep its system as it is. Whatever else is due is
// still done.
func (p *Prepared) tooLate(ctx context.Context, m *machine) error {
	if !slices.ContainsFunc(m.changes, ofSystem) || !p.closed() {
		return nil
	}
	p.engine.say(
		Event{
			Kind:    EventNote,
			Machine: m.Address,
			Message: "its system stays as it is: the window for upgrades and reboots has closed meanwhile",
		},
	)
	return p.checkOne(ctx, m)
}

// rebootTimeout is how long a machine may take to come back.
const rebootTimeout = 10 * time.Minute

// mayReboot reports whether a connection that is lost may have been lost to a reboot by this run.
func (p *Prepared) mayReboot(m *machine) bool {
	return p.engine.Config.System.Reboot && slices.ContainsFunc(m.changes, ofSystem)
}

// rebooted waits until a machine has been booted anew, and looks at it again.
func (p *Prepared) rebooted(ctx context.Context, m *machine) error {
	p.engine.say(Event{Kind: EventNote, Machine: m.Address, Message: "reboots"})
	was := m.facts.Boot
	_ = m.agent.Close()
	ctx, cancel := context.WithTimeout(ctx, rebootTimeout)
	defer cancel()
	tick := time.NewTicker(rebootLook)
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
		err := p.reach(ctx, m)
		switch {
		case err != nil:
			last = err
			continue
		case m.facts.Boot == was:
			_ = m.agent.Close() // it has not gone down yet
			continue
		}
		p.engine.say(Event{Kind: EventNote, Machine: m.Address, Message: "is back"})
		if err := p.checkOne(ctx, m); err != nil {
			return err
		}
		return p.deliver(ctx, m)
	}
}

// rebootLook is how often a machine that reboots is looked for.
const rebootLook = time.Second

// rebootLine says what becomes of a machine whose system is changed.
func (p *Prepared) rebootLine(changes []step.Change) string {
	switch {
	case slices.ContainsFunc(changes, func(c step.Change) bool { return c.Kind == step.Reboots }):
		return "reboot"
	case p.engine.Config.System.Reboot:
		return "upgrade packages, and reboot if these ask for it"
	}
	return "upgrade packages"
}

// pause lets who runs this see for himself how a change went before the next machine's turn.
func (p *Prepared) pause(ctx context.Context, m *machine) error {
	d := p.engine.Config.Roll.Pause
	if d == 0 {
		return nil
	}
	p.engine.say(
		Event{
			Kind:    EventNote,
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
