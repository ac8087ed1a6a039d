package leave

import (
	"context"
	"errors"
	"fmt"

	"clusterctl/hcl/config"
	"clusterctl/provision/role"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// RemoveMembers removes the store members of removed machines, through a machine of the control plane that stays.
// Members of dead machines must leave before new ones join, so that the majority is counted among living members.
func (l *Leaver) RemoveMembers(ctx context.Context, removed []*session.Machine, dead bool) error {
	for _, m := range removed {
		if !m.HasRole(config.RoleControlPlane) || (m.UnreachedReason != nil) != dead {
			continue
		}
		if err := l.removeMember(ctx, m); err != nil {
			return fmt.Errorf("%s: %w", m.Address, err)
		}
		if err := l.recordMemberLeft(m); err != nil {
			return err
		}
	}
	return nil
}

var errNoSurvivor = errors.New(
	"no machine of the control plane that stays is part of this run: select one, too")

// removeMember removes a machine's member from the store, through a machine that stays.
func (l *Leaver) removeMember(ctx context.Context, m *session.Machine) error {
	through := l.Situation.SurvivingControl()
	if through == nil {
		return errNoSurvivor
	}
	return through.Agent.Apply(
		ctx,
		[]step.Step{&step.EtcdLeave{Store: role.Store(l.Situation.Config, l.Situation.State,
			etcd.UnstartedNames(l.Situation.State, l.Session.Machines)...), Name: m.Name}},
		nil,
	)
}

// recordMemberLeft records at once that a member is gone. If it started again as the former member, it would form a
// store of its own.
func (l *Leaver) recordMemberLeft(m *session.Machine) error {
	return l.Ledger.Change(func(s *state.State) {
		delete(s.Etcd, m.Name)
		recorded := s.Machines[m.Address]
		s.Machines[m.Address] = state.Machine{
			Machine:    m.Machine,
			Identity:   recorded.Identity,
			Origin:     recorded.Origin,
			IsCordoned: recorded.IsCordoned,
			Issued:     recorded.Issued,
		}
	})
}

// RemoveAll removes machines one after another.
func (l *Leaver) RemoveAll(ctx context.Context, list []*session.Machine) error {
	for _, m := range list {
		if err := l.Session.ForEach(ctx, []*session.Machine{m}, l.Remove); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes one machine: it drains the node, removes the store member and cleans the machine.
func (l *Leaver) Remove(ctx context.Context, m *session.Machine) (err error) {
	defer func() { l.Session.ReportFailure(ctx, m, err) }()
	l.Session.ReportAction(m)
	if m.UnreachedReason == nil && m.HasRole(config.RoleControlPlane) &&
		l.Situation.State.Machines[m.Address].HasJoined {
		if err := l.checkLeave(ctx, m); err != nil {
			return fmt.Errorf("it is not removed: %w", err)
		}
	}
	switch {
	case !m.HasRole(config.RoleNode):
	case m.UnreachedReason != nil:
		l.Session.Report(
			report.Event{Kind: report.Note, Machine: m.Address, Message: "not drained and not cleaned: " +
				m.UnreachedReason.Error()},
		)
	case m.HasKubelet():
		if err := l.Roller.Drain(ctx, m); err != nil {
			return err
		}
	}
	if m.UnreachedReason == nil && m.HasRole(config.RoleControlPlane) {
		// Stop the API server gracefully, before it loses its store.
		if err := m.Agent.Apply(ctx, role.StopControlPlane(), nil); err != nil {
			return fmt.Errorf("stop its API server: %w", err)
		}
	}
	if err := l.RemoveMembers(ctx, []*session.Machine{m}, false); err != nil {
		return err
	}
	if m.UnreachedReason == nil {
		if err := l.Session.Apply(ctx, m, m.Steps); err != nil {
			return fmt.Errorf("clean: %w", err)
		}
		// Cleaning also deleted the record of the last run on the machine.
		l.Session.ResetTurn(m)
	}
	if err := l.Session.API.DeleteNode(ctx, m.Name); err != nil {
		return fmt.Errorf("forget the machine: %w", err)
	}
	event := report.Event{Kind: report.Done, Machine: m.Address, Message: "removed"}
	if m.CreatesNode { // the machine is being replaced
		event.Kind, event.Message = report.Note, "cleaned, to be created again"
	}
	l.Session.Report(event)
	return l.forgetMachine(m)
}

// Destroy cleans all machines at once and deletes the cluster's state.
func (l *Leaver) Destroy(ctx context.Context) error {
	err := l.Session.ForEach(ctx, l.Session.Machines, func(ctx context.Context, m *session.Machine) error {
		if m.UnreachedReason != nil {
			return fmt.Errorf("it is not cleaned: %w", m.UnreachedReason)
		}
		l.Session.ReportBegin(m, "removing")
		if err := l.Session.Apply(ctx, m, m.Steps); err != nil {
			return err
		}
		l.Session.Report(report.Event{Kind: report.Done, Machine: m.Address, Message: "removed"})
		return l.forgetMachine(m)
	})
	if err != nil || len(l.Situation.State.Machines) > 0 {
		return err
	}
	return l.Ledger.Remove()
}

// forgetMachine removes a machine from the state, and revokes its certificates.
func (l *Leaver) forgetMachine(m *session.Machine) error {
	return l.Ledger.Change(func(s *state.State) {
		recorded := s.Machines[m.Address]
		s.Revoke(certificate.Revocable(recorded.Issued, l.Session.Now())...)
		if recorded.HasJoined && recorded.Machine.HasRole(config.RoleControlPlane) && !m.CreatesNode {
			s.RecordExposure(m.Address, l.Session.Now())
		}
		delete(s.Machines, m.Address)
		delete(s.Etcd, m.Name)
	})
}
