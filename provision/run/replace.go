package run

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// isReplaced reports whether what has this address is to be deleted and created again.
func (e *Engine) isReplaced(address string) bool {
	return slices.ContainsFunc(
		e.Replaces,
		func(t string) bool { return address == t || strings.HasPrefix(address, t+"[") },
	)
}

// checkReplaceable returns an error if an address in -replace cannot be replaced or does not exist.
func (p *Prepared) checkReplaceable() error {
	e := p.engine
	for _, t := range e.Replaces {
		found := slices.ContainsFunc(p.session.Machines, func(m *session.Machine) bool {
			return m.Action == plan.Change && (m.Address == t || strings.HasPrefix(m.Address, t+"["))
		}) ||
			slices.ContainsFunc(p.State.Objects, func(o state.Object) bool { return o.Address == t && e.isSelected(t) })
		if !found {
			return fmt.Errorf("-replace %s: %s", t, p.irreplaceableReason(t))
		}
	}
	if len(p.controlPlaneOf(p.session.WithAction(plan.Change))) > 0 && len(e.Config.ControlPlane()) == 1 &&
		slices.ContainsFunc(
			p.session.Machines,
			func(m *session.Machine) bool { return m.HasRole(config.RoleControlPlane) && e.isReplaced(m.Address) },
		) {
		return fmt.Errorf(
			"-replace: the only machine of the control plane has the cluster's store: add others first, or destroy " +
				"the cluster and apply again",
		)
	}
	return nil
}

// irreplaceableReason returns why this run cannot replace the machine, workload or object at an address.
func (p *Prepared) irreplaceableReason(address string) string {
	e := p.engine
	named := func(a string) bool { return a == address || strings.HasPrefix(a, address+"[") }
	applied, declared := false, false
	for a, m := range p.State.Machines {
		applied = applied || named(a) && m.HasJoined
	}
	for _, o := range p.State.Objects {
		applied = applied || named(o.Address)
	}
	for _, m := range e.Config.Machines {
		declared = declared || named(m.Address)
	}
	for _, w := range e.Config.Workloads {
		declared = declared || named(w.Address)
	}
	for _, o := range e.Config.Objects {
		declared = declared || named(o.Address)
	}
	switch {
	case applied && declared && !e.isSelected(address) && len(e.Targets) > 0 &&
		!slices.ContainsFunc(e.Targets, func(t string) bool { return config.Includes(t, address) }):
		return "-target leaves it out of this run. Name it in -target as well"
	case applied && declared && !e.isSelected(address):
		return "-exclude leaves it out of this run"
	case applied && !declared:
		return "it is no longer declared, and apply removes it"
	case declared:
		return "it has not been applied yet, and apply creates it without -replace"
	}
	return "there is no such machine, workload or object, neither declared nor applied before"
}

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
	plan.DecideMembers(p.engine.Config, p.State, nil)
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

// replacedObjects returns the applied objects that are to be deleted and created again. It leaves out objects that the
// API would not accept again.
func (p *Prepared) replacedObjects() (list []state.Object) {
	for _, o := range p.State.Objects {
		refused := slices.ContainsFunc(
			p.refused.List,
			func(r Refusal) bool { return r.Kind == o.Kind && r.Name == o.FullName() },
		)
		if p.engine.isReplaced(o.Address) && p.engine.isSelected(o.Address) && !refused {
			list = append(list, o)
		}
	}
	return list
}

// wasReplaced reports whether this run has deleted an object in order to create it again.
func (p *Prepared) wasReplaced(o plan.Object) bool {
	return slices.ContainsFunc(p.recreatedObjects,
		func(r state.Object) bool { return r.Kind == o.Kind && r.FullName() == o.Name })
}
