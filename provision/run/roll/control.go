package roll

import (
	"context"
	"fmt"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
)

// ChangeControl changes machines of the control plane one after another. It changes each only when the others are
// healthy, and continues only when it is healthy again.
func (r *Roller) ChangeControl(ctx context.Context, control []*session.Machine) error {
	if !r.Guard.IsNeeded() {
		for _, m := range control {
			if err := r.Session.ForEach(ctx, []*session.Machine{m}, r.Change); err != nil {
				return err
			}
		}
		return nil
	}
	var names []string
	byName := map[string]*session.Machine{}
	for _, m := range control {
		names = append(names, m.Name)
		byName[m.Name] = m
	}
	if from := r.Situation.SurvivingControl(); from != nil && len(control) > 1 {
		list, err := r.Guard.Health(ctx, from)
		if err != nil {
			return err
		}
		names = plan.ControlOrder(names, list)
	}
	for i, name := range names {
		restarts := len(plan.RestartedDaemons(byName[name].Changes)) > 0
		if err := r.Session.ForEach(ctx, []*session.Machine{byName[name]}, r.ChangeGuarded); err != nil {
			return err
		}
		if restarts && i < len(names)-1 {
			if err := r.pause(ctx, byName[name]); err != nil {
				return session.ErrInterrupted
			}
		}
	}
	return nil
}

// ChangeGuarded changes one machine of the control plane when the others are healthy, and waits until the machine
// itself is healthy.
func (r *Roller) ChangeGuarded(ctx context.Context, m *session.Machine) error {
	units := plan.RestartedDaemons(m.Changes)
	if m.Action == plan.Change && len(units) > 0 {
		if err := r.Guard.Judge(ctx, m,
			func(list []plan.Health) error { return plan.CheckRestart(m.Name, units, list) }); err != nil {
			return fmt.Errorf("it is not changed: %w", err)
		}
	}
	if err := r.Change(ctx, m); err != nil {
		return err
	}
	if len(units) == 0 && m.Action == plan.Change {
		return nil
	}
	return r.Guard.AwaitRecovery(ctx, m)
}
