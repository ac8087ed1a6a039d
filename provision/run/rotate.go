package run

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// continueRotations continues the replacement of authorities and keys. The machines of this run already have the move
// that the state records. Each further move is recorded first and then applied to all machines, so that another run can
// continue an interrupted one. No move is made while a machine of the cluster is not reached.
func (p *Prepared) continueRotations(ctx context.Context) error {
	if len(p.State.Rotations) == 0 {
		return nil
	}
	machines, missing := p.situation.RemainingCluster()
	if len(missing) > 0 {
		p.session.Report(
			report.Event{
				Kind: report.Note,
				Message: fmt.Sprintf(
					"the replacement of %s goes on with the next apply that reaches %s, too",
					strings.Join(decide.RotationNames(p.State), " and "),
					strings.Join(missing, ", "),
				),
			},
		)
		return nil
	}
	for {
		moved := p.advanceRotations()
		if err := p.ledger.Write(); err != nil {
			return err
		}
		if len(moved) == 0 {
			return nil
		}
		p.Plan.Moves = append(p.Plan.Moves, moved...)
		for _, what := range moved {
			p.session.Report(report.Event{Kind: report.Note, Message: what})
		}
		if err := p.applyState(ctx, machines); err != nil {
			return err
		}
	}
}

// advanceRotations makes the next move of each rotation in the state, and returns descriptions of the moves. All
// machines have made the previous move.
func (p *Prepared) advanceRotations() (moved []string) {
	now := p.engine.now()
	for _, name := range decide.RotationNames(p.State) {
		r := p.State.Rotations[name]
		switch {
		case r.Phase == state.PhaseTrust:
			p.State.StartIssuing(name, now)
			moved = append(moved, name+": all machines trust the next one, which signs from now on")
			continue
		case r.Issued.IsZero():
			p.State.RecordIssuedEverywhere(name, now)
		}
		if p.State.Rotations[name].IsOver(now) {
			p.State.DropFormer(name)
			moved = append(moved, name+": the former one is not trusted any more")
		}
	}
	return moved
}

// applyState applies the current state to machines: the control plane one by one, nodes within the budget.
func (p *Prepared) applyState(ctx context.Context, machines []*session.Machine) error {
	if err := p.session.ForEach(ctx, machines, func(ctx context.Context, m *session.Machine) error {
		m.Action = plan.Change
		if err := p.session.Check(ctx, m); err != nil {
			return err
		}
		if len(plan.WithAction(m.Changes)) == 0 {
			m.Action = plan.None
		}
		return nil
	}); err != nil {
		return err
	}
	// The client's own certificate was issued before the move.
	live, err := p.engine.ConnectCluster(p.State, p.engine.Config)
	if err != nil {
		return err
	}
	p.session.API = live
	active := slices.DeleteFunc(slices.Clone(machines), func(m *session.Machine) bool { return m.Action == plan.None })
	for _, m := range active {
		if !slices.Contains(p.Plan.Moved, m.Address) {
			p.Plan.Moved = append(p.Plan.Moved, m.Address)
		}
	}
	control := p.situation.ControlPlaneOf(active)
	if err := p.changeOneByOne(ctx, control); err != nil {
		return err
	}
	return p.changeNodes(ctx, slices.DeleteFunc(active, func(m *session.Machine) bool { return slices.Contains(control, m) }))
}

// formerHolders names the holders of kubeconfigs that stop working without the former cluster CA. If the list cannot be
// read, the plan shows the error instead.
func (p *Prepared) formerHolders() string {
	handed, err := state.IssuedKubeconfigs(p.engine.Store.Dir)
	if err != nil {
		return "; " + err.Error()
	}
	var names []string
	for _, h := range p.State.DependOnFormerCA(handed, p.engine.now()) {
		if !slices.Contains(names, h.Name) {
			names = append(names, h.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "; kubeconfigs that need it were handed out to " + strings.Join(names, ", ")
}
