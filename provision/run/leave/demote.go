package leave

import (
	"context"
	"fmt"
	"slices"

	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// DemoteAll removes machines from the control plane, one after another. Before it runs, the rest of the control plane
// and the nodes' configuration are as declared, so that nothing uses these machines any more.
func (l *Leaver) DemoteAll(ctx context.Context, list []*session.Machine) error {
	for _, m := range list {
		if err := l.Session.ForEach(ctx, []*session.Machine{m}, l.demoteMachine); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(list, func(m *session.Machine) bool { return m.CreatesNode }) {
		return l.LabelNodes(ctx)
	}
	return nil
}

// demoteMachine drains a machine's API server, removes the machine's etcd member, and then changes the machine, which
// removes its keys. The next run continues after an interruption, because the state lists the machine as a
// control-plane machine until the end.
func (l *Leaver) demoteMachine(ctx context.Context, m *session.Machine) (err error) {
	defer func() { l.Session.ReportFailure(ctx, m, err) }()
	l.Session.ReportBegin(m, "leaving the control plane")
	if err := l.checkLeave(ctx, m); err != nil {
		return fmt.Errorf("it stays in the control plane: %w", err)
	}
	if err := m.Agent.Apply(ctx, role.StopControlPlane(), nil); err != nil {
		return fmt.Errorf("stop its API server: %w", err)
	}
	if err := l.removeMember(ctx, m); err != nil {
		return err
	}
	if err := l.Ledger.Change(func(s *state.State) { delete(s.Etcd, m.Name) }); err != nil {
		return err
	}
	// The steps that were checked before would make the member leave with the machine's own credentials, which are
	// removed now.
	if err := l.Session.Check(ctx, m); err != nil {
		return err
	}
	return l.Roller.Change(ctx, m)
}

// checkLeave returns an error if the control plane would not work without a machine. It waits for reached machines that
// may have just come back.
func (l *Leaver) checkLeave(ctx context.Context, m *session.Machine) error {
	from := l.Situation.SurvivingControl()
	if from == nil {
		return errNoSurvivor
	}
	return l.Guard.Judge(ctx, from, func(list []plan.Health) error {
		others := slices.DeleteFunc(list, func(h plan.Health) bool { return h.Name == m.Name })
		return plan.CheckLeave(m.Name, others)
	})
}
