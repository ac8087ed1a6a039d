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
	if err := p.engine.Store.Keep(); err != nil {
		return err
	}
	if err := p.protection(); err != nil {
		return err
	}
	if p.Plan.Empty() && !p.Plan.Pending {
		return p.settle()
	}
	p.State.Keys.Secrets = p.Secrets // written with the first change of the state
	err := p.walk(ctx)
	if err == nil && !p.engine.Destroy {
		err = errors.Join(p.restored(), p.remember(p.engine.Config.Secrets))
	}
	if err != nil && interrupted(ctx) && !errors.Is(err, ErrInterrupted) {
		return ErrInterrupted
	}
	return err
}

// settle writes what a plan without changes has found out: objects that no longer exist, renamed blocks, and a finished
// restore.
func (p *Prepared) settle() error {
	renewals := len(p.State.Renewals)
	p.renewedAll()
	if len(p.ended) > 0 || p.renamed || len(p.State.Renewals) < renewals {
		p.State.Objects = slices.DeleteFunc(
			p.State.Objects,
			func(o state.Object) bool { return slices.Contains(p.ended, o) },
		)
		if err := p.engine.Store.Write(p.State); err != nil {
			return err
		}
	}
	if !p.engine.Destroy {
		if err := p.restored(); err != nil {
			return err
		}
	}
	return p.remember(p.engine.Config.Secrets)
}

func (p *Prepared) walk(ctx context.Context) error {
	e := p.engine
	switch {
	case e.Refresh:
		return p.forgetGone()
	case e.Destroy:
		return p.destroy(ctx)
	}
	if err := p.mayLose(); err != nil {
		return err
	}
	return errors.Join(p.change(ctx), p.leftOut())
}

func (p *Prepared) change(ctx context.Context) error {
	e := p.engine
	if err := p.claim(ctx); err != nil {
		return err
	}
	p.admit(ctx)
	if err := p.mend(ctx); err != nil {
		return err
	}
	if err := p.unmended(p.guard(ctx)); err != nil {
		return err
	}
	if err := p.forgetLeft(); err != nil {
		return err
	}
	if err := p.beforehand(ctx); err != nil {
		return err
	}
	for _, m := range p.machines {
		if m.action == plan.Create {
			known := p.State.Machines[m.Address]
			p.State.Machines[m.Address] = state.Machine{
				Machine:  m.Machine,
				Origin:   p.origin(m),
				Cordoned: known.Cordoned,
				Issued:   known.Issued,
			}
		}
	}
	p.identified()
	p.State.Fixed = state.FixedOf(e.Config)
	p.State.Renewals = p.renewals() // so that the next run renews certificates on machines that fail in this run
	if err := e.Store.Write(p.State); err != nil {
		return err
	}
	// Files are sent to all machines at once. They change nothing until a link points to them.
	if err := p.each(ctx, p.with(plan.Create, plan.Change),
		func(ctx context.Context, m *machine) error { return p.aside(ctx, m, p.deliver(ctx, m)) }); err != nil {
		return err
	}
	active := p.with(plan.Create, plan.Change)
	control := p.control(active)
	demoted := matching(active, p.demoted)
	nodes := slices.DeleteFunc(
		slices.Clone(active),
		func(m *machine) bool { return slices.Contains(control, m) || slices.Contains(demoted, m) },
	)
	removed := p.with(plan.Remove)
	if err := p.leave(ctx, removed, true); err != nil {
		return err
	}
	if err := p.emptied(ctx, removed); err != nil {
		return err
	}
	replaced := p.with(plan.Replace)
	for _, m := range append(p.with(plan.Create), replaced...) {
		m.makes = true
	}
	for _, m := range p.with(plan.Change) {
		m.makes = blank(m) || p.demoted(m) && !p.known(m).Machine.Has(config.RoleNode)
	}
	// The machines of an existing control plane change strictly one by one. Each must be ready again before the next
	// one changes.
	changeControl := func(ctx context.Context) error { return p.oneByOne(ctx, control) }
	changeRest := func(ctx context.Context) error {
		if err := p.nodes(ctx, nodes); err != nil || !p.whole() {
			return err
		}
		for _, m := range replaced {
			if err := p.each(ctx, []*machine{m}, p.replace); err != nil {
				return err
			}
		}
		return nil
	}
	refused, err := p.beside(ctx, changeControl, changeRest)
	if err != nil || !p.whole() {
		return errors.Join(err, refused)
	}
	return errors.Join(refused, p.last(ctx, demoted, removed, replaced))
}

// admit gives the daemons' new users the rights of the users of a former release, while machines are updated from that
// release. An error becomes a note only: if no API server answers, none can refuse the new users.
func (p *Prepared) admit(ctx context.Context) {
	if p.live == nil || !p.formerUsers() {
		return
	}
	if err := p.live.AdmitReplicas(ctx); err != nil && ctx.Err() == nil {
		p.engine.say(Event{Kind: EventNote,
			Message: "API servers of the former release may refuse the daemons of updated machines: " + err.Error()})
	}
}

// last does what must wait until everything that is declared exists.
func (p *Prepared) last(ctx context.Context, demoted, removed, replaced []*machine) error {
	had := p.formerUsers() // evaluated before the removal of machines that may be the last ones with such users
	if err := p.encrypt(ctx); err != nil {
		return err
	}
	if err := p.demote(ctx, demoted); err != nil {
		return err
	}
	for _, m := range removed {
		if err := p.each(ctx, []*machine{m}, p.remove); err != nil {
			return err
		}
	}
	if p.outgrown() || had && !p.formerUsers() {
		if err := p.live.DropFormerRights(ctx); err != nil {
			return fmt.Errorf("remove the rights of users of former releases: %w", err)
		}
	}
	retired := p.retire()
	if retired {
		if err := p.write(func() {}); err != nil {
			return err
		}
	}
	if len(removed)+len(replaced) > 0 || retired || p.revokes {
		if err := p.ship(ctx); err != nil {
			return err
		}
	}
	if err := p.rotate(ctx); err != nil || len(p.State.Renewals) == 0 {
		return err
	}
	return p.write(p.renewedAll)
}

// claim records this run on all machines that it changes, and on those of the control plane, before it changes
// anything. It fails if another run changed one of them after this run planned, as when two operators have copies of
// the state.
func (p *Prepared) claim(ctx context.Context) error {
	if p.engine.Run == "" {
		return nil
	}
	return p.each(ctx, matching(p.machines, func(m *machine) bool {
		return m.agent != nil && m.dead == nil && (m.action != plan.None || m.Has(config.RoleControlPlane))
	}), p.claimOne)
}

// claimOne claims one machine. It connects again if the connection was lost while the user read the plan. A machine
// that can no longer be reached is left out of the run, as in later stages.
func (p *Prepared) claimOne(ctx context.Context, m *machine) error {
	for attempt := 1; ; attempt++ {
		err := m.agent.Apply(ctx, nil, nil)
		if !errors.Is(err, agent.ErrLost) {
			return err
		}
		if attempt < attempts && ctx.Err() == nil {
			p.engine.say(
				Event{Kind: EventNote, Machine: m.Address, Message: "the connection was lost, connecting again"},
			)
			if err = p.reconnect(ctx, m, attempt); err == nil {
				continue
			}
		}
		return p.aside(ctx, m, err)
	}
}

func (p *Prepared) with(actions ...string) (list []*machine) {
	for _, m := range p.machines {
		if slices.Contains(actions, m.action) && m.action != plan.None && m.left == nil {
			list = append(list, m)
		}
	}
	return list
}

// send sends the files that a machine's steps need.
func (p *Prepared) send(ctx context.Context, m *machine) error {
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
		p.engine.say(
			Event{
				Kind:    EventSend,
				Machine: m.Address,
				Message: fmt.Sprintf("%s, %d MB", c.Name, (c.Bytes+999_999)/1_000_000),
			},
		)
		if err := p.sendOne(ctx, m, f, name); err != nil {
			return err
		}
	}
	return nil
}

func (p *Prepared) sendOne(ctx context.Context, m *machine, f bundle.File, name string) error {
	content, err := p.engine.Bundle.Zstd(f)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	sending := &Sending{ReadCloser: content, Machine: m.Address, Name: name, Size: CompressedSize(content),
		Say: p.engine.say}
	return m.agent.Send(ctx, f.Digest, name, sending)
}

// doing maps an action to the message that is reported when it begins on a machine.
var doing = map[string]string{plan.Create: "creating", plan.Change: "changing", plan.Remove: "removing"}

func (p *Prepared) begin(m *machine, what string) {
	p.engine.say(Event{Kind: EventBegin, Machine: m.Address, Message: what})
}

const attempts = 3

// converge applies a machine's steps. If the connection is lost, it connects again and walks the same steps again.
// Steps that are already done find nothing to do.
func (p *Prepared) converge(ctx context.Context, m *machine) error {
	p.begin(m, doing[m.action])
	for attempt := 1; ; attempt++ {
		var err error
		if !m.issued {
			err = p.issue(m)
		}
		if err == nil {
			err = p.update(ctx, m, func(steps []step.Step) error {
				return m.agent.Apply(ctx, steps, func(done agent.Progress) {
					c := done.Change
					p.engine.say(Event{Kind: EventStep, Machine: m.Address, Change: &c})
				})
			})
		}
		if err == nil {
			break
		}
		if !errors.Is(err, agent.ErrLost) || attempt == attempts || ctx.Err() != nil {
			return err
		}
		if p.mayReboot(m) {
			if err := p.rebooted(ctx, m); err != nil {
				return err
			}
			continue
		}
		p.engine.say(Event{Kind: EventNote, Machine: m.Address, Message: "the connection was lost, connecting again"})
		if err := p.again(ctx, m, attempt); err != nil {
			return err
		}
	}
	writing.Lock()
	before := p.State.Machines[m.Address].Machine
	writing.Unlock()
	if before.Has(config.RoleNode) && !m.Has(config.RoleNode) && p.live != nil {
		if err := p.live.Forget(ctx, m.Name); err != nil {
			return fmt.Errorf("forget the node that the machine was: %w", err)
		}
	}
	p.engine.say(Event{Kind: EventDone, Machine: m.Address})
	return p.joined(m)
}

// again reconnects after a pause that grows with each attempt, and sends the files that are still missing.
func (p *Prepared) again(ctx context.Context, m *machine, attempt int) error {
	if err := p.reconnect(ctx, m, attempt); err != nil {
		return err
	}
	return p.deliver(ctx, m)
}

// deliver calls send, and repeats it over a new connection if the connection is lost. Files that have arrived are not
// sent again.
func (p *Prepared) deliver(ctx context.Context, m *machine) error {
	for attempt := 1; ; attempt++ {
		err := p.send(ctx, m)
		if !errors.Is(err, agent.ErrLost) || attempt == attempts || ctx.Err() != nil {
			return err
		}
		p.engine.say(Event{Kind: EventNote, Machine: m.Address, Message: "the connection was lost, connecting again"})
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
	if err := p.reach(ctx, m); err != nil {
		return err
	}
	return p.checkOne(ctx, m)
}
