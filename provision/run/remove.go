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

// removeMembers removes the store members of removed machines, through a machine of the control plane that stays.
// Members of dead machines must leave before new ones join, so that the majority is counted among living members.
func (p *Prepared) removeMembers(ctx context.Context, removed []*machine, dead bool) error {
	for _, m := range removed {
		if !m.HasRole(config.RoleControlPlane) || (m.unreachedReason != nil) != dead {
			continue
		}
		if err := p.removeMember(ctx, m); err != nil {
			return fmt.Errorf("%s: %w", m.Address, err)
		}
		if err := p.recordMemberLeft(m); err != nil {
			return err
		}
	}
	return nil
}

// removeMember removes a machine's member from the store, through a machine that stays.
func (p *Prepared) removeMember(ctx context.Context, m *machine) error {
	through := p.survivingControl()
	if through == nil {
		return errors.New("no machine of the control plane that stays is part of this run: select one, too")
	}
	return through.agent.Apply(
		ctx,
		[]step.Step{&step.EtcdLeave{Store: role.Store(p.engine.Config, p.State, p.unstartedNames()...), Name: m.Name}},
		nil,
	)
}

// recordMemberLeft records at once that a member is gone. If it started again as the former member, it would form a
// store of its own.
func (p *Prepared) recordMemberLeft(m *machine) error {
	return p.writeState(func() {
		delete(p.State.Etcd, m.Name)
		known := p.State.Machines[m.Address]
		p.State.Machines[m.Address] = state.Machine{
			Machine:    m.Machine,
			Identity:   known.Identity,
			Origin:     known.Origin,
			IsCordoned: known.IsCordoned,
			Issued:     known.Issued,
		}
	})
}

// survivingControl returns a machine of the control plane that existed before this run and stays.
func (p *Prepared) survivingControl() *machine {
	for _, m := range p.machines {
		if m.agent != nil && m.HasRole(config.RoleControlPlane) &&
			(m.action == plan.None || m.action == plan.Change || p.State.Machines[m.Address].HasJoined &&
				m.action != plan.Remove) {
			return m
		}
	}
	return nil
}

// unstartedNames returns the names of the machines to create that have not joined yet.
func (p *Prepared) unstartedNames() (names []string) {
	for _, m := range p.machines {
		if m.action == plan.Create && !p.State.Machines[m.Address].HasJoined {
			names = append(names, m.Name)
		}
	}
	return names
}

// removeMachine removes one machine: it drains the node, removes the store member and cleans the machine.
func (p *Prepared) removeMachine(ctx context.Context, m *machine) (err error) {
	defer func() { p.reportFailure(ctx, m, err) }()
	p.reportBegin(m, beginMessages[m.action])
	switch {
	case !m.HasRole(config.RoleNode):
	case m.unreachedReason != nil:
		p.engine.report(
			Event{Kind: EventNote, Machine: m.Address, Message: "not drained and not cleaned: " +
				m.unreachedReason.Error()},
		)
	case m.hasKubelet():
		if err := p.drainNode(ctx, m); err != nil {
			return err
		}
	}
	if m.unreachedReason == nil && m.HasRole(config.RoleControlPlane) {
		// Stop the API server gracefully, before it loses its store.
		if err := m.agent.Apply(ctx, role.StopControlPlane(), nil); err != nil {
			return fmt.Errorf("stop its API server: %w", err)
		}
	}
	if err := p.removeMembers(ctx, []*machine{m}, false); err != nil {
		return err
	}
	if m.unreachedReason == nil {
		if err := m.agent.Apply(ctx, m.steps, func(done agent.Progress) {
			c := done.Change
			p.engine.report(Event{Kind: EventStep, Machine: m.Address, Change: &c})
		}); err != nil {
			return fmt.Errorf("clean: %w", err)
		}
		// Cleaning also deleted the record of the last run on the machine.
		m.turn = &agent.Turn{Run: p.engine.Run, Operator: p.engine.Operator}
	}
	if err := p.cluster.DeleteNode(ctx, m.Name); err != nil {
		return fmt.Errorf("forget the machine: %w", err)
	}
	said := Event{Kind: EventDone, Machine: m.Address, Message: "removed"}
	if m.createsNode { // the machine is being replaced
		said.Kind, said.Message = EventNote, "cleaned, to be made anew"
	}
	p.engine.report(said)
	return p.forgetMachine(m)
}

// hasKubelet reports whether the machine still runs a kubelet. If an earlier run has removed it after draining, the
// remaining pods are deleted with the Node object.
func (m *machine) hasKubelet() bool {
	return slices.ContainsFunc(
		m.changes,
		func(c step.Change) bool { return c.Kind == "unit" && c.Name == "kubelet.service" },
	)
}

// destroyCluster cleans all machines at once and deletes the cluster's state.
func (p *Prepared) destroyCluster(ctx context.Context) error {
	err := p.forEach(ctx, p.machines, func(ctx context.Context, m *machine) error {
		if m.unreachedReason != nil {
			return fmt.Errorf("it is not cleaned: %w", m.unreachedReason)
		}
		p.reportBegin(m, beginMessages[plan.Remove])
		if err := m.agent.Apply(ctx, m.steps, func(done agent.Progress) {
			c := done.Change
			p.engine.report(Event{Kind: EventStep, Machine: m.Address, Change: &c})
		}); err != nil {
			return err
		}
		p.engine.report(Event{Kind: EventDone, Machine: m.Address, Message: "removed"})
		return p.forgetMachine(m)
	})
	if err != nil || len(p.State.Machines) > 0 {
		return err
	}
	return p.engine.Store.Remove()
}
