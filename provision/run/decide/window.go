package decide

import (
	"fmt"
	"slices"

	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// IsWindowClosed reports whether upgrades and reboots must wait because their window is closed.
func (p *Situation) IsWindowClosed() bool {
	w := p.Config.System.Window
	return w != nil && !w.IsOpen(p.Now())
}

// WindowLines returns a line for the plan if upgrades and reboots must wait for their window.
func (p *Situation) WindowLines() []string {
	s := p.Config.System
	if p.Options.IsDestroy || !s.HasMaintenance() || !p.IsWindowClosed() {
		return nil
	}
	return []string{
		fmt.Sprintf("upgrades and reboots of machines are not looked at: their window opens %s.",
			s.Window.NextOpening(p.Now()).Format("Mon 2006-01-02 15:04 MST")),
	}
}

// IsSystemChange reports whether a change takes its whole machine out of service.
func IsSystemChange(c step.Change) bool {
	return c.Kind == step.KindUpgrade || c.Kind == step.KindReboot
}

// MayHaveRebooted reports whether the connection may have been lost because this run rebooted the machine.
func (p *Situation) MayHaveRebooted(m *session.Machine) bool {
	return p.Config.System.Reboot && slices.ContainsFunc(m.Changes, IsSystemChange)
}

// rebootLine describes how a change of the system affects the machine.
func (p describer) rebootLine(changes []step.Change) string {
	switch {
	case slices.ContainsFunc(changes, func(c step.Change) bool { return c.Kind == step.KindReboot }):
		return "reboot"
	case p.Config.System.Reboot:
		return "upgrade packages, and reboot if these ask for it"
	}
	return "upgrade packages"
}
