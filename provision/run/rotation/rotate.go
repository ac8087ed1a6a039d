package rotation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Continue continues the replacement of authorities and keys. The machines of this run already have the move
// that the state records. Each further move is recorded first and then applied to all machines, so that another run can
// continue an interrupted one. No move is made while a machine of the cluster is not reached.
func (t *Rotator) Continue(ctx context.Context) error {
	if len(t.Situation.State.Rotations) == 0 {
		return nil
	}
	machines, missing := t.Situation.RemainingCluster()
	if len(missing) > 0 {
		t.Session.Report(
			report.Event{
				Kind: report.Note,
				Message: fmt.Sprintf("the replacement of %s continues with the next apply that also reaches %s",
					strings.Join(decide.RotationNames(t.Situation.State), " and "), strings.Join(missing, ", ")),
			},
		)
		return nil
	}
	for {
		var moved []string
		if err := t.Ledger.Change(func(s *state.State) { moved = advance(s, t.Session.Now()) }); err != nil {
			return err
		}
		if len(moved) == 0 {
			return nil
		}
		t.Plan.Moves = append(t.Plan.Moves, moved...)
		for _, what := range moved {
			t.Session.Report(report.Event{Kind: report.Note, Message: what})
		}
		if err := t.applyState(ctx, machines); err != nil {
			return err
		}
	}
}

// advance makes the next move of each rotation in s, and returns descriptions of the moves. All machines have made the
// previous move.
func advance(s *state.State, now time.Time) (moved []string) {
	for _, name := range decide.RotationNames(s) {
		r := s.Rotations[name]
		switch {
		case r.Phase == state.PhaseTrust:
			s.StartIssuing(name, now)
			moved = append(moved, name+": all machines trust the next one, which signs from now on")
			continue
		case r.Issued.IsZero():
			s.RecordIssuedEverywhere(name, now)
		}
		if s.Rotations[name].IsOver(now) {
			s.DropFormer(name)
			moved = append(moved, name+": the former one is not trusted any more")
		}
	}
	return moved
}

// applyState applies the current state to machines: the control plane one by one, nodes within the budget.
func (t *Rotator) applyState(ctx context.Context, machines []*session.Machine) error {
	if err := t.Session.ForEach(ctx, machines, func(ctx context.Context, m *session.Machine) error {
		m.Action = plan.Change
		if err := t.Session.Check(ctx, m); err != nil {
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
	live, err := t.Connect()
	if err != nil {
		return err
	}
	t.Session.API = live
	active := slices.DeleteFunc(slices.Clone(machines), func(m *session.Machine) bool { return m.Action == plan.None })
	for _, m := range active {
		if !slices.Contains(t.Plan.Moved, m.Address) {
			t.Plan.Moved = append(t.Plan.Moved, m.Address)
		}
	}
	control := t.Situation.ControlPlaneOf(active)
	if err := t.Roller.ChangeControl(ctx, control); err != nil {
		return err
	}
	return t.Roller.ChangeNodes(ctx,
		slices.DeleteFunc(active, func(m *session.Machine) bool { return slices.Contains(control, m) }))
}
