package run

import (
	"context"
	"errors"
	"fmt"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// removeMembers removes the store members of removed machines, through a machine of the control plane that stays.
// Members of dead machines must leave before new ones join, so that the majority is counted among living members.
func (p *Prepared) removeMembers(ctx context.Context, removed []*session.Machine, dead bool) error {
	for _, m := range removed {
		if !m.HasRole(config.RoleControlPlane) || (m.UnreachedReason != nil) != dead {
			continue
		}
		if err := p.removeMember(ctx, m); err != nil {
			return fmt.Errorf("%s: %w", m.Address, err)
		}
		if err := p.recordMemberLeft(m); err != nil {
			return err
		}
	}
	return nil
}

// removeMember removes a machine's member from the store, through a machine that stays.
func (p *Prepared) removeMember(ctx context.Context, m *session.Machine) error {
	through := p.situation.SurvivingControl()
	if through == nil {
		return errors.New("no machine of the control plane that stays is part of this run: select one, too")
	}
	return through.Agent.Apply(
		ctx,
		[]step.Step{&step.EtcdLeave{Store: role.Store(p.engine.Config, p.State, etcd.UnstartedNames(p.State, p.session.Machines)...), Name: m.Name}},
		nil,
	)
}

// recordMemberLeft records at once that a member is gone. If it started again as the former member, it would form a
// store of its own.
func (p *Prepared) recordMemberLeft(m *session.Machine) error {
	return p.ledger.Change(func(*state.State) {
		delete(p.State.Etcd, m.Name)
		known := p.State.Machines[m.Address]
		p.State.Machines[m.Address] = state.Machine{
			Machine:    m.Machine,
			Identity:   known.Identity,
			Origin:     known.Origin,
			IsCordoned: known.IsCordoned,
			Issued:     known.Issued,
		}
	})
}

// removeMachine removes one machine: it drains the node, removes the store member and cleans the machine.
func (p *Prepared) removeMachine(ctx context.Context, m *session.Machine) (err error) {
	defer func() { p.session.ReportFailure(ctx, m, err) }()
	p.session.ReportBegin(m, beginMessages[m.Action])
	switch {
	case !m.HasRole(config.RoleNode):
	case m.UnreachedReason != nil:
		p.session.Report(
			report.Event{Kind: report.Note, Machine: m.Address, Message: "not drained and not cleaned: " +
				m.UnreachedReason.Error()},
		)
	case m.HasKubelet():
		if err := p.drainNode(ctx, m); err != nil {
			return err
		}
	}
	if m.UnreachedReason == nil && m.HasRole(config.RoleControlPlane) {
		// Stop the API server gracefully, before it loses its store.
		if err := m.Agent.Apply(ctx, role.StopControlPlane(), nil); err != nil {
			return fmt.Errorf("stop its API server: %w", err)
		}
	}
	if err := p.removeMembers(ctx, []*session.Machine{m}, false); err != nil {
		return err
	}
	if m.UnreachedReason == nil {
		if err := m.Agent.Apply(ctx, m.Steps, func(done agent.Progress) {
			c := done.Change
			p.session.Report(report.Event{Kind: report.Step, Machine: m.Address, Change: &c})
		}); err != nil {
			return fmt.Errorf("clean: %w", err)
		}
		// Cleaning also deleted the record of the last run on the machine.
		p.session.ResetTurn(m)
	}
	if err := p.session.API.DeleteNode(ctx, m.Name); err != nil {
		return fmt.Errorf("forget the machine: %w", err)
	}
	said := report.Event{Kind: report.Done, Machine: m.Address, Message: "removed"}
	if m.CreatesNode { // the machine is being replaced
		said.Kind, said.Message = report.Note, "cleaned, to be made anew"
	}
	p.session.Report(said)
	return p.forgetMachine(m)
}

// destroyCluster cleans all machines at once and deletes the cluster's state.
func (p *Prepared) destroyCluster(ctx context.Context) error {
	err := p.session.ForEach(ctx, p.session.Machines, func(ctx context.Context, m *session.Machine) error {
		if m.UnreachedReason != nil {
			return fmt.Errorf("it is not cleaned: %w", m.UnreachedReason)
		}
		p.session.ReportBegin(m, beginMessages[plan.Remove])
		if err := m.Agent.Apply(ctx, m.Steps, func(done agent.Progress) {
			c := done.Change
			p.session.Report(report.Event{Kind: report.Step, Machine: m.Address, Change: &c})
		}); err != nil {
			return err
		}
		p.session.Report(report.Event{Kind: report.Done, Machine: m.Address, Message: "removed"})
		return p.forgetMachine(m)
	})
	if err != nil || len(p.State.Machines) > 0 {
		return err
	}
	return p.ledger.Remove()
}
