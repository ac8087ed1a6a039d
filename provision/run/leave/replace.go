package leave

import (
	"context"
	"fmt"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// ReplaceAll replaces machines one after another.
func (l *Leaver) ReplaceAll(ctx context.Context, list []*session.Machine) error {
	for _, m := range list {
		if err := l.Session.ForEach(ctx, []*session.Machine{m}, l.Replace); err != nil {
			return err
		}
	}
	return nil
}

// Replace removes one machine as if it were no longer declared, and adds it again as a new one.
func (l *Leaver) Replace(ctx context.Context, m *session.Machine) error {
	if m.HasRole(config.RoleControlPlane) && l.Guard.IsNeeded() {
		list, err := l.Guard.Health(ctx, m)
		if err != nil {
			return err
		}
		if err := plan.CheckRestart(m.Name, []string{"etcd", "kube-apiserver"}, list); err != nil {
			return fmt.Errorf("it is not replaced: %w", err)
		}
	}
	l.Session.ReportBegin(m, "replacing")
	m.Action, m.Steps = plan.Remove, role.Clean()
	var err error
	if m.Changes, err = m.Agent.Check(ctx, m.Steps); err != nil {
		return err
	}
	if err := l.Remove(ctx, m); err != nil {
		return err
	}
	m.Action = plan.Create
	if err := l.Ledger.ChangeMachine(m.Address, func(s *state.Machine) { s.Machine = m.Machine }); err != nil {
		return err
	}
	l.Ledger.Record(func(s *state.State) { s.Etcd = plan.DecideMembers(l.Situation.Config, s, nil) })
	// What was found on the machine has changed, and the agent's program has been removed with the rest.
	if err := l.Session.ReconnectAndResend(ctx, m, 0); err != nil {
		return err
	}
	roll := l.Roller.Change
	if m.HasRole(config.RoleControlPlane) {
		roll = l.Roller.ChangeGuarded
	}
	if err := roll(ctx, m); err != nil {
		return fmt.Errorf("it was removed, and is not created again yet (apply continues with that): %w", err)
	}
	l.Session.Report(report.Event{Kind: report.Done, Machine: m.Address,
		Message: "replaced: cleaned, and created again"})
	return nil
}
