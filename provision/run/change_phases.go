package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/ledger"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// admitUsers gives the daemons' new users the rights of the users of a former release, while machines are updated from
// that release. An error becomes a note only: if no API server answers, none can refuse the new users.
func admitUsers(ctx context.Context, c *change) error {
	if c.session.API == nil {
		return nil
	}
	if err := c.session.API.AdmitReplicas(ctx); err != nil && ctx.Err() == nil {
		c.session.Report(report.Event{Kind: report.Note,
			Message: "API servers of the former release may refuse the daemons of updated machines: " + err.Error()})
	}
	return nil
}

// forgetKept removes from the state the machines and objects that removed blocks leave unchanged.
func forgetKept(s *decide.Situation, l *ledger.Ledger) error {
	some := false
	l.Record(func(from *state.State) { some = s.ForgetKept(from) })
	if !some {
		return nil
	}
	return l.Write()
}

// snapshotBeforeRisks takes a snapshot of the store before the risky actions of a change.
func snapshotBeforeRisks(ctx context.Context, c *change) error {
	if c.situation.Options.SkipsSnapshot {
		c.session.Report(
			report.Event{Kind: report.Note, Message: "no snapshot of the store is taken, as -no-snapshot says"})
		return nil
	}
	control := session.Filter(c.session.Machines,
		func(m *session.Machine) bool { return m.IsConnected() && m.HasRole(config.RoleControlPlane) })
	a := &etcd.Access{Session: c.session.With(control), Ledger: c.ledger, State: c.situation.State,
		Config: c.situation.Config}
	return a.SnapshotBefore(ctx, c.situation.RiskyActions())
}

// recordStart records the machines that the change creates and what it will do, so that another run can continue.
func recordStart(s *decide.Situation, l *ledger.Ledger, renewals *certificate.Renewals) error {
	return l.Change(func(to *state.State) {
		for _, m := range s.Machines {
			if m.Action == plan.Create {
				recorded := to.Machines[m.Address]
				to.Machines[m.Address] = state.Machine{
					Machine:    m.Machine,
					Origin:     s.OriginIdentity(m),
					IsCordoned: recorded.IsCordoned,
					Issued:     recorded.Issued,
				}
			}
		}
		s.RecordIdentities(to)
		to.Fixed = state.FixedOf(s.Config)
		to.Renewals = renewals.All(to) // so that the next run renews certificates on machines that fail in this run
	})
}

// sendAll sends files to all machines at once. They change nothing until a link points to them.
func sendAll(ctx context.Context, s *session.Session) error {
	return s.ForEach(ctx, s.WithAction(plan.Create, plan.Change), func(ctx context.Context, m *session.Machine) error {
		return s.LeaveOut(ctx, m, s.SendWithRetry(ctx, m))
	})
}

// groupMachines divides the machines of a change by what is done with them, and notes which nodes the change creates.
func groupMachines(s *decide.Situation) (g machineGroups) {
	active := s.WithAction(plan.Create, plan.Change)
	g.control, g.demoted = s.ControlPlaneOf(active), session.Filter(active, s.IsDemoted)
	g.nodes = session.Filter(active,
		func(m *session.Machine) bool { return !slices.Contains(g.control, m) && !slices.Contains(g.demoted, m) })
	g.removed, g.replaced = s.WithAction(plan.Remove), s.WithAction(plan.Replace)
	for _, m := range slices.Concat(s.WithAction(plan.Create), g.replaced) {
		m.CreatesNode = true
	}
	for _, m := range s.WithAction(plan.Change) {
		m.CreatesNode = m.HasNoCluster() ||
			s.IsDemoted(m) && !s.State.Machines[m.Address].Machine.HasRole(config.RoleNode)
	}
	return g
}

// changeMachinesAndObjects changes the control plane, and then all other machines while it applies the objects. The
// machines of an existing control plane change strictly one by one. Each must be ready again before the next one
// changes.
func changeMachinesAndObjects(ctx context.Context, c *change) error {
	control := func(ctx context.Context) error { return c.roller.ChangeControl(ctx, c.groups.control) }
	rest := func(ctx context.Context) error {
		if err := c.roller.ChangeNodes(ctx, c.groups.nodes); err != nil || !c.session.HasAll() {
			return err
		}
		return c.leaver.ReplaceAll(ctx, c.groups.replaced)
	}
	refused, err := c.withObjects(ctx, control, rest)
	if err != nil || !c.session.HasAll() {
		return errors.Join(err, refused)
	}
	c.refused = refused
	c.hadFormerUsers = hasFormerUsers(c) // before the removal of machines that may be the last ones with such users
	return nil
}

// dropFormerRights removes the rights of users of former releases once no machine has a certificate of them.
func dropFormerRights(ctx context.Context, c *change) error {
	replaced := false
	c.ledger.View(func(s *state.State) { replaced = certificate.HasReplacedFormerUsers(s) })
	if !replaced && (!c.hadFormerUsers || hasFormerUsers(c)) {
		return nil
	}
	if err := c.session.API.DropFormerRights(ctx); err != nil {
		return fmt.Errorf("remove the rights of users of former releases: %w", err)
	}
	return nil
}

// revoke revokes the certificates that the change has replaced, and makes all machines refuse what was revoked.
func revoke(ctx context.Context, c *change) error {
	superseded := false
	c.ledger.Record(func(s *state.State) {
		superseded = certificate.RevokeSuperseded(s, c.session.Machines, c.session.Now())
	})
	if superseded {
		if err := c.ledger.Write(); err != nil {
			return err
		}
	}
	if len(c.groups.removed)+len(c.groups.replaced) == 0 && !superseded && !c.roller.HasRevoked() {
		return nil
	}
	return c.rotator.SendRevocations(ctx)
}

// dropCompletedRenewals removes the renewals that are complete on all their machines from a state.
func dropCompletedRenewals(of *decide.Situation, s *state.State) {
	_, missing := of.RemainingCluster()
	s.Renewals = certificate.IncompleteRenewals(s, missing)
}
