package run

import (
	"context"
	"fmt"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// replaceMachine removes one machine as if it were no longer declared, and adds it again as a new one.
func (p *Prepared) replaceMachine(ctx context.Context, m *session.Machine) error {
	if m.HasRole(config.RoleControlPlane) && p.needsGuard() {
		list, err := p.health(ctx, m)
		if err != nil {
			return err
		}
		if err := plan.CheckRestart(m.Name, []string{"etcd", "kube-apiserver"}, list); err != nil {
			return fmt.Errorf("it is not replaced: %w", err)
		}
	}
	p.session.ReportBegin(m, "replacing")
	m.Action, m.Steps = plan.Remove, role.Clean()
	var err error
	if m.Changes, err = m.Agent.Check(ctx, m.Steps); err != nil {
		return err
	}
	if err := p.removeMachine(ctx, m); err != nil {
		return err
	}
	m.Action = plan.Create
	if err := p.ledger.ChangeMachine(m.Address, func(s *state.Machine) { s.Machine = m.Machine }); err != nil {
		return err
	}
	p.ledger.Record(func(s *state.State) { s.Etcd = plan.DecideMembers(p.engine.Config, s, nil) })
	// What was found on the machine has changed, and the agent's program has been removed with the rest.
	if err := p.session.ReconnectAndResend(ctx, m, 0); err != nil {
		return err
	}
	roll := p.rollMachine
	if m.HasRole(config.RoleControlPlane) {
		roll = p.guardedRoll
	}
	if err := roll(ctx, m); err != nil {
		return fmt.Errorf("it was taken away, and is not made anew yet (apply goes on with that): %w", err)
	}
	p.session.Report(report.Event{Kind: report.Done, Machine: m.Address, Message: "replaced: cleaned, and made anew"})
	return nil
}

// wasReplaced reports whether this run has deleted an object in order to create it again.
func (p *Prepared) wasReplaced(o plan.Object) bool {
	return slices.ContainsFunc(p.recreatedObjects,
		func(r state.Object) bool { return r.Kind == o.Kind && r.FullName() == o.Name })
}
