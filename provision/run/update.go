package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// releases returns the machines with their present releases, as reported by the machines or else by the state.
func (p *Prepared) releases() (list []plan.MachineRelease) {
	to := p.engine.Bundle.Release()
	for _, m := range p.engine.Config.Machines {
		known := p.State.Machines[m.Address]
		u := plan.MachineRelease{Address: m.Address, HasServer: m.HasRole(config.RoleControlPlane),
			HasKubelet: m.HasRole(config.RoleNode)}
		if known.Release != nil {
			u.From = *known.Release
		}
		if i := slices.IndexFunc(p.session.Machines, func(own *session.Machine) bool { return own.Address == m.Address }); i >= 0 &&
			p.session.Machines[i].Agent != nil {
			own := p.session.Machines[i]
			if own.Facts.Release != nil {
				u.From = *own.Facts.Release
			}
			u.ChangesRelease = own.Action == plan.Create || own.Action == plan.Change && u.From.Build != to.Build
		}
		if known.HasJoined || u.ChangesRelease {
			list = append(list, u)
		}
	}
	return list
}

// checkReleases returns an error for updates that violate the version skew rules, and for downgrades that
// -allow-downgrade does not name.
func (p *Prepared) checkReleases() error {
	if p.isNewCluster || p.engine.IsDestroy {
		return nil
	}
	to, list := p.engine.Bundle.Release(), p.releases()
	if !slices.ContainsFunc(list, func(u plan.MachineRelease) bool { return u.ChangesRelease }) {
		return nil
	}
	return errors.Join(plan.CheckSkew(to, list), plan.CheckDowngrade(to, list, p.State.Releases, p.engine.Downgrade))
}

// updateLine describes the update of a machine and its last failure. It returns "" if the machine keeps its release.
func (p *Prepared) updateLine(m *session.Machine, entry *plan.Machine) string {
	if !hasUpdate(m) {
		return ""
	}
	to := p.engine.Bundle.Release()
	var from host.Release
	if m.Facts.Release != nil {
		from = *m.Facts.Release
	}
	was, is := plan.ReleaseNames(from, to)
	text := "repair programs of " + is
	if p.changesRelease(m) {
		entry.FromRelease, entry.ToRelease = was, is
		text = "update " + was + " to " + is
	}
	if tried := m.Facts.UnconfirmedRelease; tried != nil {
		name, _ := plan.ReleaseNames(*tried, from)
		text += ", where an update to " + name + " was cut off"
	}
	if failed := p.ledger.Machine(m.Address).Failed; failed != nil {
		name, _ := plan.ReleaseNames(failed.To, from)
		entry.LastFailure = fmt.Sprintf(
			"last time, %s, %s was rolled back: %s",
			failed.At.UTC().Format(time.RFC3339),
			name,
			failed.Reason,
		)
	}
	return text
}

// changesRelease reports whether a machine changes to another release. If it does not, an update repairs programs of
// the release that the machine has.
func (p *Prepared) changesRelease(m *session.Machine) bool {
	return hasUpdate(m) && (m.Facts.Release == nil || m.Facts.Release.Build != p.engine.Bundle.Release().Build)
}

// hasUpdate reports whether a machine changes to another release, or has changed to one that is not confirmed yet.
func hasUpdate(m *session.Machine) bool {
	return m.Action == plan.Change &&
		slices.ContainsFunc(m.Changes, func(c step.Change) bool { return c.Kind == "release" })
}

// RolledBackError reports that a release did not work on a machine and was rolled back.
type RolledBackError struct {
	To, From string
	Reason   error
}

func (e *RolledBackError) Error() string {
	return fmt.Sprintf("%s does not work here, and was rolled back: %s runs again. %v", e.To, e.From, e.Reason)
}

func (e *RolledBackError) Unwrap() error { return e.Reason }

// updateMachineRelease applies a machine's steps up to the step that deletes the former release, and checks from
// outside that the machine is well. Then it applies the rest. If that fails, the machine returns to the former release
// by itself.
func (p *Prepared) updateMachineRelease(ctx context.Context, m *session.Machine, apply func([]step.Step) error) error {
	end := slices.IndexFunc(m.Steps, func(s step.Step) bool { _, ok := s.(*step.Sweep); return ok })
	if !hasUpdate(m) || end < 0 {
		return apply(m.Steps)
	}
	err := apply(m.Steps[:end])
	if err == nil {
		err = p.awaitHealthyMachine(ctx, m)
	}
	if err == nil {
		return apply(m.Steps[end:])
	}
	if errors.Is(err, agent.ErrLost) || ctx.Err() != nil || session.IsInterrupted(ctx) {
		return err // the run continues on the machine where it was
	}
	return p.rollBack(ctx, m, err)
}

// awaitHealthyMachine waits until a machine is well as seen by others: its member of the store, its API server and its
// node.
func (p *Prepared) awaitHealthyMachine(ctx context.Context, m *session.Machine) error {
	if m.HasRole(config.RoleControlPlane) && p.ledger.Machine(m.Address).HasJoined {
		if err := p.awaitRecovery(ctx, m); err != nil {
			return err
		}
	}
	if !m.HasRole(config.RoleNode) {
		return nil
	}
	limit := cmp.Or(p.engine.Config.Roll.Timeout, readyTimeout)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	want := p.engine.Bundle.Release().Kubernetes
	for {
		ready, kubelet, err := p.session.API.Node(ctx, m.Name)
		switch {
		case err != nil:
			err = fmt.Errorf("its node cannot be asked for: %w", err)
		case kubelet == "": // the machine has never had a Node
			return nil
		case ready != "True":
			err = fmt.Errorf("its node is not ready (%s)", ready)
		case kubelet != want:
			err = fmt.Errorf("its node has Kubernetes %s, not %s", kubelet, want)
		default:
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s after its programs changed %w", limit, err)
		}
	}
}

const rollBackTimeout = 6 * time.Minute

// rollBack returns a machine to the former release, and records why.
func (p *Prepared) rollBack(ctx context.Context, m *session.Machine, why error) error {
	to := p.engine.Bundle.Release()
	var from host.Release
	if m.Facts.Release != nil {
		from = *m.Facts.Release
	}
	e := &RolledBackError{Reason: why}
	e.From, e.To = plan.ReleaseNames(from, to)
	p.session.Report(
		report.Event{
			Kind:    report.Note,
			Machine: m.Address,
			Message: fmt.Sprintf("%s does not work here, going back to %s: %v", e.To, e.From, why),
		},
	)
	ctx, cancel := context.WithTimeout(ctx, rollBackTimeout)
	defer cancel()
	err := m.Agent.Apply(ctx, role.RollBack(m.Steps), func(done agent.Progress) {
		c := done.Change
		p.session.Report(report.Event{Kind: report.Step, Machine: m.Address, Change: &c})
	})
	if err == nil && m.HasRole(config.RoleControlPlane) && p.ledger.Machine(m.Address).HasJoined {
		err = p.awaitRecovery(ctx, m)
	}
	failed := &state.FailedUpdate{To: to, At: p.engine.now(), Reason: config.Mask(why.Error(), p.Secrets)}
	if writeErr := p.ledger.ChangeMachine(m.Address, func(s *state.Machine) { s.Failed = failed }); writeErr != nil {
		return errors.Join(e, writeErr)
	}
	if err != nil {
		return fmt.Errorf(
			"%s does not work here: %w\nand going back to %s failed as well, so that the machine needs you "+
				"(docs/operations/update-does-not-start.md): %w",
			e.To,
			why,
			e.From,
			err,
		)
	}
	return e
}
