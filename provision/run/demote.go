package run

import (
	"context"
	"fmt"
	"slices"

	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// demoteAll removes machines from the control plane, one after another. Before it runs, the rest of the control plane
// and the nodes' configuration are as declared, so that nothing uses these machines any more.
func (p *Prepared) demoteAll(ctx context.Context, list []*session.Machine) error {
	for _, m := range list {
		if err := p.session.ForEach(ctx, []*session.Machine{m}, p.demoteMachine); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(list, func(m *session.Machine) bool { return m.CreatesNode }) {
		return p.labelNodes(ctx)
	}
	return nil
}

// demoteMachine drains a machine's API server, removes the machine's etcd member, and then changes the machine, which
// removes its keys. The next run continues after an interruption, because the state lists the machine as a
// control-plane machine until the end.
func (p *Prepared) demoteMachine(ctx context.Context, m *session.Machine) (err error) {
	defer func() { p.session.ReportFailure(ctx, m, err) }()
	p.session.ReportBegin(m, "leaving the control plane")
	from := p.situation.SurvivingControl()
	if from == nil {
		return fmt.Errorf(
			"it stays in the control plane: no machine of the control plane that stays is part of this run: select " +
				"one, too",
		)
	}
	if err := p.retryJudgement(ctx, from,
		func(list []plan.Health) error { return plan.CheckLeave(m.Name, list) }); err != nil {
		return fmt.Errorf("it stays in the control plane: %w", err)
	}
	if err := m.Agent.Apply(ctx, role.StopControlPlane(), nil); err != nil {
		return fmt.Errorf("stop its API server: %w", err)
	}
	if err := p.removeMember(ctx, m); err != nil {
		return err
	}
	if err := p.ledger.Change(func(*state.State) { delete(p.State.Etcd, m.Name) }); err != nil {
		return err
	}
	// The steps that were checked before would make the member leave with the machine's own credentials, which are
	// removed now.
	if err := p.session.Check(ctx, m); err != nil {
		return err
	}
	return p.rollMachine(ctx, m)
}
