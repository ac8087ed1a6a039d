package run

import (
	"context"
	"errors"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
)

// chooseMachines lists the machines of the run, and what the state forgets.
func (p *Prepared) chooseMachines(context.Context) error {
	if err := p.situation.PlanForgets(p.Plan); err != nil {
		return err
	}
	p.setMachines(p.situation.ChooseMachines())
	return nil
}

// checkSelection returns an error if the flags of the run select something that does not exist or cannot be done.
func (p *Prepared) checkSelection(context.Context) error {
	if err := p.situation.CheckSelection(); err != nil {
		return err
	}
	if err := p.situation.CheckDestroyable(); err != nil {
		return err
	}
	if err := p.situation.CheckSurvivors(); err != nil {
		return err
	}
	return p.situation.CheckReplaceable()
}

// connect connects to the machines, and checks that they are the declared ones and can become what is declared.
func (p *Prepared) connect(ctx context.Context) error {
	var skipped skippedError
	list := p.session.Machines
	if len(list) > 0 {
		p.session.Report(
			report.Event{Kind: report.Phase, Message: "connecting to " + plan.Number(len(list), "machine")})
	}
	err := p.session.ForEach(ctx, list, func(ctx context.Context, m *session.Machine) error {
		err := p.session.Connect(ctx, m)
		if err != nil && ctx.Err() == nil && p.engine.CanSkip(m.Machine, m.Action == plan.Remove) {
			skipped.add(m, err)
			return nil
		}
		if err != nil && ctx.Err() == nil && (p.engine.IsPlanOnly || m.Action == plan.Remove) {
			m.UnreachedReason = err // the machine is removed without a connection, or only a plan is wanted
			return nil
		}
		return err
	})
	if session.IsInterrupted(ctx) {
		return err
	}
	// Report the problems of the other machines in the same error.
	err = errors.Join(err, p.checkIdentities())
	next := p.State.Clone()
	next.EtcdCluster = decide.EtcdCluster(p.State, list)
	p.setState(next)
	warnings, tables := p.situation.Preflight()
	p.Plan.Warnings, p.Plan.WaitingChanges = warnings, p.situation.WindowLines()
	if err = errors.Join(err, tables); err == nil && len(skipped.list) > 0 {
		return &skipped
	}
	return err
}

// checkIdentities returns an error if a machine is not the one that its block means. It disconnects from machines that
// are to be removed and serve another cluster now.
func (p *Prepared) checkIdentities() error {
	foreign, err := p.situation.CheckIdentities()
	for m, reason := range foreign {
		m.Disconnect(reason)
	}
	return err
}
