package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// leave removes the store members of removed machines, through a machine of the control plane that stays. Members of
// dead machines must leave before new ones join, so that the majority is counted among living members.
func (p *Prepared) leave(ctx context.Context, removed []*machine, dead bool) error {
	for _, m := range removed {
		if !m.Has(config.RoleControlPlane) || (m.dead != nil) != dead {
			continue
		}
		if err := p.leaveOne(ctx, m); err != nil {
			return fmt.Errorf("%s: %w", m.Address, err)
		}
		if err := p.left(m); err != nil {
			return err
		}
	}
	return nil
}

// leaveOne removes a machine's member from the store, through a machine that stays.
func (p *Prepared) leaveOne(ctx context.Context, m *machine) error {
	through := p.survivor()
	if through == nil {
		return errors.New("no machine of the control plane that stays is part of this run: select one, too")
	}
	return through.agent.Apply(
		ctx,
		[]step.Step{&step.EtcdLeave{Store: role.Store(p.engine.Config, p.State, p.unstarted()...), Name: m.Name}},
		nil,
	)
}

// left records at once that a member is gone. If it started again as the former member, it would form a store of its
// own.
func (p *Prepared) left(m *machine) error {
	return p.write(func() {
		delete(p.State.Etcd, m.Name)
		known := p.State.Machines[m.Address]
		p.State.Machines[m.Address] = state.Machine{
			Machine:  m.Machine,
			Identity: known.Identity,
			Origin:   known.Origin,
			Cordoned: known.Cordoned,
			Issued:   known.Issued,
		}
	})
}

// survivor returns a machine of the control plane that existed before this run and stays.
func (p *Prepared) survivor() *machine {
	for _, m := range p.machines {
		if m.agent != nil && m.Has(config.RoleControlPlane) &&
			(m.action == plan.None || m.action == plan.Change || p.State.Machines[m.Address].Joined &&
				m.action != plan.Remove) {
			return m
		}
	}
	return nil
}

// unstarted returns the names of the machines to create that have not joined yet.
func (p *Prepared) unstarted() (names []string) {
	for _, m := range p.machines {
		if m.action == plan.Create && !p.State.Machines[m.Address].Joined {
			names = append(names, m.Name)
		}
	}
	return names
}

// remove removes one machine: it drains the node, removes the store member and cleans the machine.
func (p *Prepared) remove(ctx context.Context, m *machine) (err error) {
	defer func() { p.failed(ctx, m, err) }()
	p.begin(m, doing[m.action])
	switch {
	case !m.Has(config.RoleNode):
	case m.dead != nil:
		p.engine.say(
			Event{Kind: EventNote, Machine: m.Address, Message: "not drained and not cleaned: " + m.dead.Error()},
		)
	case m.tended():
		if err := p.drain(ctx, m); err != nil {
			return err
		}
	}
	if m.dead == nil && m.Has(config.RoleControlPlane) {
		// Stop the API server gracefully, before it loses its store.
		if err := m.agent.Apply(ctx, role.StopControlPlane(), nil); err != nil {
			return fmt.Errorf("stop its API server: %w", err)
		}
	}
	if err := p.leave(ctx, []*machine{m}, false); err != nil {
		return err
	}
	if m.dead == nil {
		if err := m.agent.Apply(ctx, m.steps, func(done agent.Progress) {
			c := done.Change
			p.engine.say(Event{Kind: EventStep, Machine: m.Address, Change: &c})
		}); err != nil {
			return fmt.Errorf("clean: %w", err)
		}
		// Cleaning also deleted the record of the last run on the machine.
		m.saw = &agent.Turn{Run: p.engine.Run, Who: p.engine.Who}
	}
	if err := p.live.Forget(ctx, m.Name); err != nil {
		return fmt.Errorf("forget the machine: %w", err)
	}
	said := Event{Kind: EventDone, Machine: m.Address, Message: "removed"}
	if m.makes { // the machine is being replaced
		said.Kind, said.Message = EventNote, "cleaned, to be made anew"
	}
	p.engine.say(said)
	return p.forget(m)
}

// tended reports whether the machine still runs a kubelet. If an earlier run has removed it after draining, the
// remaining pods are deleted with the Node object.
func (m *machine) tended() bool {
	return slices.ContainsFunc(
		m.changes,
		func(c step.Change) bool { return c.Kind == "unit" && c.Name == "kubelet.service" },
	)
}

// destroy cleans all machines at once and deletes the cluster's state.
func (p *Prepared) destroy(ctx context.Context) error {
	err := p.each(ctx, p.machines, func(ctx context.Context, m *machine) error {
		if m.dead != nil {
			return fmt.Errorf("it is not cleaned: %w", m.dead)
		}
		p.begin(m, doing[plan.Remove])
		if err := m.agent.Apply(ctx, m.steps, func(done agent.Progress) {
			c := done.Change
			p.engine.say(Event{Kind: EventStep, Machine: m.Address, Change: &c})
		}); err != nil {
			return err
		}
		p.engine.say(Event{Kind: EventDone, Machine: m.Address, Message: "removed"})
		return p.forget(m)
	})
	if err != nil || len(p.State.Machines) > 0 {
		return err
	}
	return p.engine.Store.Remove()
}
