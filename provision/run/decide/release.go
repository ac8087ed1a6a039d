package decide

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// releases returns the machines with their present releases, as reported by the machines or else by the state.
func releases(p *Situation) (list []plan.MachineRelease) {
	to := p.Release
	for _, m := range p.Config.Machines {
		recorded := p.State.Machines[m.Address]
		u := plan.MachineRelease{Address: m.Address, HasServer: m.HasRole(config.RoleControlPlane),
			HasKubelet: m.HasRole(config.RoleNode)}
		if recorded.Release != nil {
			u.From = *recorded.Release
		}
		if i := slices.IndexFunc(p.Machines,
			func(own *session.Machine) bool { return own.Address == m.Address }); i >= 0 &&
			p.Machines[i].Agent != nil {
			own := p.Machines[i]
			if own.Facts.Release != nil {
				u.From = *own.Facts.Release
			}
			u.ChangesRelease = own.Action == plan.Create || own.Action == plan.Change && u.From.Build != to.Build
		}
		if recorded.HasJoined || u.ChangesRelease {
			list = append(list, u)
		}
	}
	return list
}

// CheckReleases returns an error for updates that violate the version skew rules, and for downgrades that
// -allow-downgrade does not name.
func (p *Situation) CheckReleases() error {
	if p.IsNewCluster || p.Options.IsDestroy {
		return nil
	}
	to, list := p.Release, releases(p)
	if !slices.ContainsFunc(list, func(u plan.MachineRelease) bool { return u.ChangesRelease }) {
		return nil
	}
	return errors.Join(plan.CheckSkew(to, list), plan.CheckDowngrade(to, list, p.State.Releases, p.Options.Downgrade))
}

// updateLine describes the update of a machine and its last failure. It returns "" if the machine keeps its release.
func (p describer) updateLine(m *session.Machine, entry *plan.Machine) string {
	if !HasUpdate(m) {
		return ""
	}
	to := p.Release
	var from host.Release
	if m.Facts.Release != nil {
		from = *m.Facts.Release
	}
	before, after := plan.ReleaseNames(from, to)
	text := "repair programs of " + after
	if p.ChangesRelease(m) {
		entry.FromRelease, entry.ToRelease = before, after
		text = "update " + before + " to " + after
	}
	if tried := m.Facts.UnconfirmedRelease; tried != nil {
		name, _ := plan.ReleaseNames(*tried, from)
		text += ", where an update to " + name + " was interrupted"
	}
	if failed := p.State.Machines[m.Address].Failed; failed != nil {
		name, _ := plan.ReleaseNames(failed.To, from)
		entry.LastFailure = fmt.Sprintf("last time, %s, %s was rolled back: %s", failed.At.UTC().Format(time.RFC3339),
			name, failed.Reason)
	}
	return text
}

// ChangesRelease reports whether a machine changes to another release. If it does not, an update repairs programs of
// the release that the machine has.
func (p *Situation) ChangesRelease(m *session.Machine) bool {
	return HasUpdate(m) && (m.Facts.Release == nil || m.Facts.Release.Build != p.Release.Build)
}

// HasUpdate reports whether a machine changes to another release, or has changed to one that is not confirmed yet.
func HasUpdate(m *session.Machine) bool {
	return m.Action == plan.Change &&
		slices.ContainsFunc(m.Changes, func(c step.Change) bool { return c.Kind == "release" })
}
