package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Apply carries out the plan. It writes the state as soon as any part of it becomes true, so that an interrupted run
// can be repeated. If machines were skipped, Apply returns an error that names them after all other work is done.
func (p *Prepared) Apply(ctx context.Context) error {
	err := p.apply(ctx)
	if errors.Is(err, session.ErrInterrupted) {
		return err
	}
	return errors.Join(err, p.Skipped())
}

func (p *Prepared) apply(ctx context.Context) error {
	if err := p.ledger.SaveVersion(); err != nil {
		return err
	}
	if err := p.updateProtection(); err != nil {
		return err
	}
	if p.Plan.IsEmpty() && !p.Plan.IsPending {
		return p.recordUnchanged()
	}
	p.State.Keys.Secrets = p.Secrets // written with the first change of the state
	err := p.runStages(ctx)
	if err == nil && !p.engine.IsDestroy {
		err = errors.Join(p.clearRestore(), p.recordSecrets(p.engine.Config.Secrets))
	}
	if err != nil && session.IsInterrupted(ctx) && !errors.Is(err, session.ErrInterrupted) {
		return session.ErrInterrupted
	}
	return err
}

// recordUnchanged writes what a plan without changes has found out: objects that no longer exist, renamed blocks, and a
// finished restore.
func (p *Prepared) recordUnchanged() error {
	renewals := len(p.State.Renewals)
	p.dropCompletedRenewals(p.State)
	if len(p.VanishedObjects) > 0 || p.HasRenames || len(p.State.Renewals) < renewals {
		p.State.Objects = slices.DeleteFunc(
			p.State.Objects,
			func(o state.Object) bool { return slices.Contains(p.VanishedObjects, o) },
		)
		if err := p.ledger.Write(); err != nil {
			return err
		}
	}
	if !p.engine.IsDestroy {
		if err := p.clearRestore(); err != nil {
			return err
		}
	}
	return p.recordSecrets(p.engine.Config.Secrets)
}

func (p *Prepared) runStages(ctx context.Context) error {
	e := p.engine
	switch {
	case e.IsRefreshOnly:
		return p.removeMissing()
	case e.IsDestroy:
		return p.destroyCluster(ctx)
	}
	if going, err := p.objectsToDelete(); err != nil {
		return err
	} else if err := p.situation.CheckDataLoss(going, p.VanishedObjects); err != nil {
		return err
	}
	return errors.Join(p.changeMachines(ctx), p.session.LeftOutError())
}

func (p *Prepared) changeMachines(ctx context.Context) error {
	e := p.engine
	if p.engine.Run != "" {
		if err := p.session.ClaimAll(ctx); err != nil {
			return err
		}
	}
	p.admitUsers(ctx)
	if err := p.repairAll(ctx); err != nil {
		return err
	}
	if err := p.addUnrepaired(p.checkMajority(ctx)); err != nil {
		return err
	}
	if p.situation.ForgetKept(p.State) {
		if err := p.ledger.Write(); err != nil {
			return err
		}
	}
	if err := p.snapshotBeforeRisks(ctx); err != nil {
		return err
	}
	for _, m := range p.session.Machines {
		if m.Action == plan.Create {
			known := p.State.Machines[m.Address]
			p.State.Machines[m.Address] = state.Machine{
				Machine:    m.Machine,
				Origin:     p.situation.OriginIdentity(m),
				IsCordoned: known.IsCordoned,
				Issued:     known.Issued,
			}
		}
	}
	p.situation.RecordIdentities(p.State)
	p.State.Fixed = state.FixedOf(e.Config)
	p.State.Renewals = p.renewals.All(p.State) // so that the next run renews certificates on machines that fail in this run
	if err := e.Store.Write(p.State); err != nil {
		return err
	}
	// Files are sent to all machines at once. They change nothing until a link points to them.
	if err := p.session.ForEach(ctx, p.session.WithAction(plan.Create, plan.Change),
		func(ctx context.Context,
			m *session.Machine) error {
			return p.session.LeaveOut(ctx, m, p.session.SendWithRetry(ctx, m))
		}); err != nil {
		return err
	}
	active := p.session.WithAction(plan.Create, plan.Change)
	control := p.situation.ControlPlaneOf(active)
	demoted := session.Filter(active, p.situation.IsDemoted)
	nodes := slices.DeleteFunc(
		slices.Clone(active),
		func(m *session.Machine) bool { return slices.Contains(control, m) || slices.Contains(demoted, m) },
	)
	removed := p.session.WithAction(plan.Remove)
	if err := p.removeMembers(ctx, removed, true); err != nil {
		return err
	}
	if err := p.keepPodsOffRemoved(ctx, removed); err != nil {
		return err
	}
	replaced := p.session.WithAction(plan.Replace)
	for _, m := range append(p.session.WithAction(plan.Create), replaced...) {
		m.CreatesNode = true
	}
	for _, m := range p.session.WithAction(plan.Change) {
		m.CreatesNode = m.HasNoCluster() || p.situation.IsDemoted(m) && !p.ledger.Machine(m.Address).Machine.HasRole(config.RoleNode)
	}
	// The machines of an existing control plane change strictly one by one. Each must be ready again before the next
	// one changes.
	changeControl := func(ctx context.Context) error { return p.changeOneByOne(ctx, control) }
	changeRest := func(ctx context.Context) error {
		if err := p.changeNodes(ctx, nodes); err != nil || !p.session.HasAll() {
			return err
		}
		for _, m := range replaced {
			if err := p.session.ForEach(ctx, []*session.Machine{m}, p.replaceMachine); err != nil {
				return err
			}
		}
		return nil
	}
	refused, err := p.changeAndApplyObjects(ctx, changeControl, changeRest)
	if err != nil || !p.session.HasAll() {
		return errors.Join(err, refused)
	}
	return errors.Join(refused, p.finish(ctx, demoted, removed, replaced))
}

// admitUsers gives the daemons' new users the rights of the users of a former release, while machines are updated from
// that release. An error becomes a note only: if no API server answers, none can refuse the new users.
func (p *Prepared) admitUsers(ctx context.Context) {
	if p.session.API == nil || !p.hasFormerUsers() {
		return
	}
	if err := p.session.API.AdmitReplicas(ctx); err != nil && ctx.Err() == nil {
		p.session.Report(report.Event{Kind: report.Note,
			Message: "API servers of the former release may refuse the daemons of updated machines: " + err.Error()})
	}
}

// finish does what must wait until everything that is declared exists.
func (p *Prepared) finish(ctx context.Context, demoted, removed, replaced []*session.Machine) error {
	had := p.hasFormerUsers() // evaluated before the removal of machines that may be the last ones with such users
	if err := p.changeEncryption(ctx); err != nil {
		return err
	}
	if err := p.demoteAll(ctx, demoted); err != nil {
		return err
	}
	for _, m := range removed {
		if err := p.session.ForEach(ctx, []*session.Machine{m}, p.removeMachine); err != nil {
			return err
		}
	}
	if p.hasReplacedFormerUsers() || had && !p.hasFormerUsers() {
		if err := p.session.API.DropFormerRights(ctx); err != nil {
			return fmt.Errorf("remove the rights of users of former releases: %w", err)
		}
	}
	retired := p.revokeSuperseded()
	if retired {
		if err := p.ledger.Write(); err != nil {
			return err
		}
	}
	if len(removed)+len(replaced) > 0 || retired || p.hasRevoked {
		if err := p.sendRevocations(ctx); err != nil {
			return err
		}
	}
	if err := p.continueRotations(ctx); err != nil || len(p.State.Renewals) == 0 {
		return err
	}
	return p.ledger.Change(p.dropCompletedRenewals)
}

// beginMessages maps an action to the message that is reported when it begins on a machine.
var beginMessages = map[string]string{plan.Create: "creating", plan.Change: "changing", plan.Remove: "removing"}

// converge applies a machine's steps. If the connection is lost, it connects again and walks the same steps again.
// Steps that are already done find nothing to do.
func (p *Prepared) converge(ctx context.Context, m *session.Machine) error {
	p.session.ReportBegin(m, beginMessages[m.Action])
	for attempt := 1; ; attempt++ {
		var err error
		if !m.HasCertificates {
			err = p.issuer.Issue(m)
		}
		if err == nil {
			err = p.updateMachineRelease(ctx, m, func(steps []step.Step) error {
				return m.Agent.Apply(ctx, steps, func(done agent.Progress) {
					c := done.Change
					p.session.Report(report.Event{Kind: report.Step, Machine: m.Address, Change: &c})
				})
			})
		}
		if err == nil {
			break
		}
		if !errors.Is(err, agent.ErrLost) || attempt == session.MaxAttempts || ctx.Err() != nil {
			return err
		}
		if p.situation.MayHaveRebooted(m) {
			if err := p.awaitReboot(ctx, m); err != nil {
				return err
			}
			continue
		}
		p.session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "the connection was lost, connecting " +
			"again"})
		if err := p.session.ReconnectAndResend(ctx, m, attempt); err != nil {
			return err
		}
	}
	before := p.ledger.Machine(m.Address).Machine
	if before.HasRole(config.RoleNode) && !m.HasRole(config.RoleNode) && p.session.API != nil {
		if err := p.session.API.DeleteNode(ctx, m.Name); err != nil {
			return fmt.Errorf("forget the node that the machine was: %w", err)
		}
	}
	p.session.Report(report.Event{Kind: report.Done, Machine: m.Address})
	return p.recordJoined(m)
}
