package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/bundle"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Apply carries out the plan. It writes the state as soon as any part of it becomes true, so that an interrupted run
// can be repeated. If machines were skipped, Apply returns an error that names them after all other work is done.
func (p *Prepared) Apply(ctx context.Context) error {
	err := p.apply(ctx)
	if errors.Is(err, ErrInterrupted) {
		return err
	}
	return errors.Join(err, p.Skipped())
}

func (p *Prepared) apply(ctx context.Context) error {
	if err := p.engine.Store.SaveVersion(); err != nil {
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
	if err != nil && isInterrupted(ctx) && !errors.Is(err, ErrInterrupted) {
		return ErrInterrupted
	}
	return err
}

// recordUnchanged writes what a plan without changes has found out: objects that no longer exist, renamed blocks, and a
// finished restore.
func (p *Prepared) recordUnchanged() error {
	renewals := len(p.State.Renewals)
	p.dropCompletedRenewals()
	if len(p.vanishedObjects) > 0 || p.hasRenames || len(p.State.Renewals) < renewals {
		p.State.Objects = slices.DeleteFunc(
			p.State.Objects,
			func(o state.Object) bool { return slices.Contains(p.vanishedObjects, o) },
		)
		if err := p.engine.Store.Write(p.State); err != nil {
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
	if err := p.checkDataLoss(); err != nil {
		return err
	}
	return errors.Join(p.changeMachines(ctx), p.leftOutError())
}

func (p *Prepared) changeMachines(ctx context.Context) error {
	e := p.engine
	if err := p.claimMachines(ctx); err != nil {
		return err
	}
	p.admitUsers(ctx)
	if err := p.repairAll(ctx); err != nil {
		return err
	}
	if err := p.addUnrepaired(p.checkMajority(ctx)); err != nil {
		return err
	}
	if err := p.forgetKept(); err != nil {
		return err
	}
	if err := p.snapshotBeforeRisks(ctx); err != nil {
		return err
	}
	for _, m := range p.machines {
		if m.action == plan.Create {
			known := p.State.Machines[m.Address]
			p.State.Machines[m.Address] = state.Machine{
				Machine:    m.Machine,
				Origin:     p.originIdentity(m),
				IsCordoned: known.IsCordoned,
				Issued:     known.Issued,
			}
		}
	}
	p.recordIdentities()
	p.State.Fixed = state.FixedOf(e.Config)
	p.State.Renewals = p.renewals() // so that the next run renews certificates on machines that fail in this run
	if err := e.Store.Write(p.State); err != nil {
		return err
	}
	// Files are sent to all machines at once. They change nothing until a link points to them.
	if err := p.forEach(ctx, p.withAction(plan.Create, plan.Change),
		func(ctx context.Context,
			m *machine) error {
			return p.leaveOut(ctx, m, p.sendWithRetry(ctx, m))
		}); err != nil {
		return err
	}
	active := p.withAction(plan.Create, plan.Change)
	control := p.controlPlaneOf(active)
	demoted := filterMachines(active, p.isDemoted)
	nodes := slices.DeleteFunc(
		slices.Clone(active),
		func(m *machine) bool { return slices.Contains(control, m) || slices.Contains(demoted, m) },
	)
	removed := p.withAction(plan.Remove)
	if err := p.removeMembers(ctx, removed, true); err != nil {
		return err
	}
	if err := p.keepPodsOffRemoved(ctx, removed); err != nil {
		return err
	}
	replaced := p.withAction(plan.Replace)
	for _, m := range append(p.withAction(plan.Create), replaced...) {
		m.createsNode = true
	}
	for _, m := range p.withAction(plan.Change) {
		m.createsNode = hasNoCluster(m) || p.isDemoted(m) && !p.machineState(m).Machine.HasRole(config.RoleNode)
	}
	// The machines of an existing control plane change strictly one by one. Each must be ready again before the next
	// one changes.
	changeControl := func(ctx context.Context) error { return p.changeOneByOne(ctx, control) }
	changeRest := func(ctx context.Context) error {
		if err := p.changeNodes(ctx, nodes); err != nil || !p.hasAllMachines() {
			return err
		}
		for _, m := range replaced {
			if err := p.forEach(ctx, []*machine{m}, p.replaceMachine); err != nil {
				return err
			}
		}
		return nil
	}
	refused, err := p.changeAndApplyObjects(ctx, changeControl, changeRest)
	if err != nil || !p.hasAllMachines() {
		return errors.Join(err, refused)
	}
	return errors.Join(refused, p.finish(ctx, demoted, removed, replaced))
}

// admitUsers gives the daemons' new users the rights of the users of a former release, while machines are updated from
// that release. An error becomes a note only: if no API server answers, none can refuse the new users.
func (p *Prepared) admitUsers(ctx context.Context) {
	if p.cluster == nil || !p.hasFormerUsers() {
		return
	}
	if err := p.cluster.AdmitReplicas(ctx); err != nil && ctx.Err() == nil {
		p.engine.report(Event{Kind: EventNote,
			Message: "API servers of the former release may refuse the daemons of updated machines: " + err.Error()})
	}
}

// finish does what must wait until everything that is declared exists.
func (p *Prepared) finish(ctx context.Context, demoted, removed, replaced []*machine) error {
	had := p.hasFormerUsers() // evaluated before the removal of machines that may be the last ones with such users
	if err := p.changeEncryption(ctx); err != nil {
		return err
	}
	if err := p.demoteAll(ctx, demoted); err != nil {
		return err
	}
	for _, m := range removed {
		if err := p.forEach(ctx, []*machine{m}, p.removeMachine); err != nil {
			return err
		}
	}
	if p.hasReplacedFormerUsers() || had && !p.hasFormerUsers() {
		if err := p.cluster.DropFormerRights(ctx); err != nil {
			return fmt.Errorf("remove the rights of users of former releases: %w", err)
		}
	}
	retired := p.revokeSuperseded()
	if retired {
		if err := p.writeState(func() {}); err != nil {
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
	return p.writeState(p.dropCompletedRenewals)
}

// claimMachines records this run on all machines that it changes, and on those of the control plane, before it changes
// anything. It fails if another run changed one of them after this run planned, as when two operators have copies of
// the state.
func (p *Prepared) claimMachines(ctx context.Context) error {
	if p.engine.Run == "" {
		return nil
	}
	return p.forEach(ctx, filterMachines(p.machines, func(m *machine) bool {
		return m.agent != nil && m.unreachedReason == nil &&
			(m.action != plan.None || m.HasRole(config.RoleControlPlane))
	}), p.claimMachine)
}

// claimMachine claims one machine. It connects again if the connection was lost while the user read the plan. A machine
// that can no longer be reached is left out of the run, as in later stages.
func (p *Prepared) claimMachine(ctx context.Context, m *machine) error {
	for attempt := 1; ; attempt++ {
		err := m.agent.Apply(ctx, nil, nil)
		if !errors.Is(err, agent.ErrLost) {
			return err
		}
		if attempt < maxAttempts && ctx.Err() == nil {
			p.engine.report(
				Event{Kind: EventNote, Machine: m.Address, Message: "the connection was lost, connecting again"},
			)
			if err = p.reconnect(ctx, m, attempt); err == nil {
				continue
			}
		}
		return p.leaveOut(ctx, m, err)
	}
}

func (p *Prepared) withAction(actions ...string) (list []*machine) {
	for _, m := range p.machines {
		if slices.Contains(actions, m.action) && m.action != plan.None && m.leftOutReason == nil {
			list = append(list, m)
		}
	}
	return list
}

// sendFiles sends the files that a machine's steps need.
func (p *Prepared) sendFiles(ctx context.Context, m *machine) error {
	for i, c := range m.changes {
		if c.Needs == "" {
			continue
		}
		f, ok := p.engine.Bundle.ByDigest(c.Needs)
		if !ok {
			return fmt.Errorf("%s needs a file of digest %s that the bundle does not have", m.steps[i].Label(), c.Needs)
		}
		name := f.Name
		if _, image := m.steps[i].(*step.Image); image {
			name = "image.tar"
		}
		p.engine.report(
			Event{
				Kind:    EventSend,
				Machine: m.Address,
				Message: fmt.Sprintf("%s, %d MB", c.Name, (c.Bytes+999_999)/1_000_000),
			},
		)
		if err := p.sendFile(ctx, m, f, name); err != nil {
			return err
		}
	}
	return nil
}

func (p *Prepared) sendFile(ctx context.Context, m *machine, f bundle.File, name string) error {
	content, err := p.engine.Bundle.Zstd(f)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	sending := &Sending{ReadCloser: content, Machine: m.Address, Name: name, Size: CompressedSize(content),
		Report: p.engine.report}
	return m.agent.Send(ctx, f.Digest, name, sending)
}

// beginMessages maps an action to the message that is reported when it begins on a machine.
var beginMessages = map[string]string{plan.Create: "creating", plan.Change: "changing", plan.Remove: "removing"}

func (p *Prepared) reportBegin(m *machine, what string) {
	p.engine.report(Event{Kind: EventBegin, Machine: m.Address, Message: what})
}

const maxAttempts = 3

// converge applies a machine's steps. If the connection is lost, it connects again and walks the same steps again.
// Steps that are already done find nothing to do.
func (p *Prepared) converge(ctx context.Context, m *machine) error {
	p.reportBegin(m, beginMessages[m.action])
	for attempt := 1; ; attempt++ {
		var err error
		if !m.hasCertificates {
			err = p.issueCertificates(m)
		}
		if err == nil {
			err = p.updateMachineRelease(ctx, m, func(steps []step.Step) error {
				return m.agent.Apply(ctx, steps, func(done agent.Progress) {
					c := done.Change
					p.engine.report(Event{Kind: EventStep, Machine: m.Address, Change: &c})
				})
			})
		}
		if err == nil {
			break
		}
		if !errors.Is(err, agent.ErrLost) || attempt == maxAttempts || ctx.Err() != nil {
			return err
		}
		if p.mayHaveRebooted(m) {
			if err := p.awaitReboot(ctx, m); err != nil {
				return err
			}
			continue
		}
		p.engine.report(Event{Kind: EventNote, Machine: m.Address, Message: "the connection was lost, connecting " +
			"again"})
		if err := p.reconnectAndResend(ctx, m, attempt); err != nil {
			return err
		}
	}
	stateMu.Lock()
	before := p.State.Machines[m.Address].Machine
	stateMu.Unlock()
	if before.HasRole(config.RoleNode) && !m.HasRole(config.RoleNode) && p.cluster != nil {
		if err := p.cluster.DeleteNode(ctx, m.Name); err != nil {
			return fmt.Errorf("forget the node that the machine was: %w", err)
		}
	}
	p.engine.report(Event{Kind: EventDone, Machine: m.Address})
	return p.recordJoined(m)
}

// reconnectAndResend reconnects after a pause that grows with each attempt, and sends the files that are still missing.
func (p *Prepared) reconnectAndResend(ctx context.Context, m *machine, attempt int) error {
	if err := p.reconnect(ctx, m, attempt); err != nil {
		return err
	}
	return p.sendWithRetry(ctx, m)
}

// sendWithRetry calls send, and repeats it over a new connection if the connection is lost. Files that have arrived are
// not sent again.
func (p *Prepared) sendWithRetry(ctx context.Context, m *machine) error {
	for attempt := 1; ; attempt++ {
		err := p.sendFiles(ctx, m)
		if !errors.Is(err, agent.ErrLost) || attempt == maxAttempts || ctx.Err() != nil {
			return err
		}
		p.engine.report(Event{Kind: EventNote, Machine: m.Address, Message: "the connection was lost, connecting " +
			"again"})
		if err := p.reconnect(ctx, m, attempt); err != nil {
			return err
		}
	}
}

// reconnect opens a new connection and checks the machine's steps again.
func (p *Prepared) reconnect(ctx context.Context, m *machine, attempt int) error {
	_ = m.agent.Close()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(attempt) * time.Second):
	}
	if err := p.connectMachine(ctx, m); err != nil {
		return err
	}
	return p.checkMachine(ctx, m)
}
