package run

import (
	"context"
	"fmt"
	"slices"

	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// planRefresh compares the state with the machines and the API. It plans to forget machines that have nothing of the
// cluster on them any more, and objects that do not exist. Machines that do not answer stay in the state.
func (p *Prepared) planRefresh(ctx context.Context) error {
	var list []*session.Machine
	for _, address := range decide.SortedMachines(p.State) {
		if m := p.State.Machines[address]; p.engine.IsSelected(address) {
			list = append(list, &session.Machine{Machine: m.Machine, Action: plan.Change})
		}
	}
	p.setMachines(list)
	err := p.session.ForEach(ctx, p.session.Machines, func(ctx context.Context, m *session.Machine) error {
		if err := p.session.Connect(ctx, m); err != nil {
			if !p.engine.IsPlanOnly || ctx.Err() != nil {
				return err
			}
			m.Action, m.UnreachedReason = plan.Unreachable, err
			return nil
		}
		// the agent is on the machine because it is doing this check
		m.Steps = slices.DeleteFunc(role.Clean(), role.IsIgnoredByRefresh)
		ctx, cancel := context.WithTimeout(ctx, session.CheckTimeout)
		defer cancel()
		changes, err := m.Agent.Check(ctx, m.Steps)
		m.Action = plan.Remove
		if slices.ContainsFunc(changes, func(c step.Change) bool { return c.Action != "" }) {
			m.Action = plan.None
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, m := range p.session.Machines {
		entry := plan.Machine{Address: m.Address, Action: m.Action, Note: plan.Describe(m.Facts)}
		switch m.Action {
		case plan.Unreachable:
			entry.Note = m.UnreachedReason.Error()
		case plan.Remove:
			entry.Note = "nothing of the cluster is on it any more: the state forgets it"
		}
		p.Plan.Machines = append(p.Plan.Machines, entry)
	}
	if p.situation.IsNewCluster || len(p.State.Objects) == 0 {
		return nil
	}
	live, err := p.engine.ConnectCluster(p.State, p.engine.Config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, session.CheckTimeout)
	defer cancel()
	removed, err := live.Missing(ctx, p.State.Objects)
	if err != nil {
		return fmt.Errorf("find out which objects are still there: %w", err)
	}
	for _, o := range removed {
		if p.engine.IsSelected(o.Address) {
			p.Plan.Objects = append(
				p.Plan.Objects,
				plan.Object{
					Address: o.Address,
					Kind:    o.Kind,
					Name:    o.FullName(),
					Action:  plan.Remove,
					Note:    "not there any more: the state forgets it",
				},
			)
		}
	}
	return nil
}
