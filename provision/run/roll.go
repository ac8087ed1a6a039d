package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// nodes changes machines that do not belong to an existing control plane. Once one has failed, it changes no more of
// those whose daemons restart.
func (p *Prepared) nodes(ctx context.Context, list []*machine) error {
	together, ahead, rolled := p.split(list)
	if err := p.issueAll(ctx, together); err != nil {
		return err
	}
	if err := errors.Join(p.each(ctx, together, p.roll), p.writeOwed()); err != nil {
		return err
	}
	failed := p.each(ctx, ahead, p.roll)
	if failed != nil && (!p.goesOn() || interrupted(ctx)) {
		return errors.Join(failed, p.writeOwed())
	}
	var stop atomic.Bool
	var left atomic.Int64
	left.Store(int64(len(rolled)))
	err := p.most(ctx, p.budget(), rolled, func(ctx context.Context, m *machine) error {
		if stop.Load() {
			return nil
		}
		err := p.roll(ctx, m)
		if err != nil && !p.goesOn() {
			stop.Store(true)
		}
		if err != nil || left.Add(-1) <= 0 {
			return err
		}
		return p.pause(ctx, m)
	})
	return errors.Join(failed, err, p.writeOwed())
}

// goesOn reports whether other nodes are changed after one has failed.
func (p *Prepared) goesOn() bool { return p.engine.Config.Roll.OnFailure == config.OnFailureContinue }

func (p *Prepared) count(role string) (n int) {
	for _, m := range p.engine.Config.Machines {
		if m.Has(role) {
			n++
		}
	}
	return n
}

// roll changes one machine, and drains it first if the change requires that.
func (p *Prepared) roll(ctx context.Context, m *machine) (err error) {
	defer func() { p.failed(ctx, m, err) }()
	if err := p.tooLate(ctx, m); err != nil {
		return err
	}
	node := m.Has(config.RoleNode) && !p.fresh
	if why := plan.Drains(m.changes); node && why != "" && m.action == plan.Change {
		if err := p.clear(ctx, m, why); err != nil {
			return err
		}
	}
	if node {
		p.forgetFormer(ctx, m)
	}
	err = p.converge(ctx, m)
	if err != nil && !errors.As(err, new(*RolledBack)) {
		return err
	}
	if !p.known(m).Cordoned {
		return err
	}
	return errors.Join(err, p.back(ctx, m))
}

const forgetTimeout = 10 * time.Second

// forgetFormer deletes a Node that belongs to a former machine with the same name, for example before a reinstallation.
// The kubelet would otherwise reuse that Node with its provider ID, and its pods would no longer exist. A ready Node is
// kept until it is drained, unless nothing of the cluster is on the machine. An unreachable API does not stop the
// machine's change, because this run may repair the API.
func (p *Prepared) forgetFormer(ctx context.Context, m *machine) {
	now := p.engine.Config.Inventory[m.Name]
	if now.ProviderID == "" || m.action != plan.Change && !p.engine.replaced(m.Address) {
		return // no former machine had the name
	}
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	if !blank(m) {
		if ready, err := p.live.Nodes(ctx); err != nil || ready[m.Name] == "True" {
			return
		}
	}
	switch forgot, err := p.live.ForgetFormer(ctx, m.Name, now); {
	case err != nil:
		p.engine.say(
			Event{
				Kind:    EventNote,
				Machine: m.Address,
				Message: "whether its Node is of a machine that had its name before is not known: " + err.Error(),
			},
		)
	case forgot:
		p.engine.say(
			Event{
				Kind:    EventNote,
				Machine: m.Address,
				Message: "the Node of the machine that had its name before is deleted, and with it the pods that " +
					"were there",
			},
		)
	}
}

// blank reports whether a machine has nothing of a cluster on it.
func blank(m *machine) bool { return m.agent != nil && m.facts.ClusterCA == "" }

// clear drains a node if there is another ready node for its pods.
func (p *Prepared) clear(ctx context.Context, m *machine, why string) error {
	ready, err := p.live.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	switch is, there := ready[m.Name]; {
	case !there:
		return nil
	case is == "Unknown": // no kubelet can end its pods, and they are unsupervised until the machine is repaired
		p.engine.say(
			Event{
				Kind:    EventNote,
				Machine: m.Address,
				Message: "not drained, but mended first: nothing has been heard of its kubelet",
			},
		)
		return nil
	}
	if !plan.Elsewhere(m.Name, ready) {
		p.engine.say(
			Event{Kind: EventNote, Machine: m.Address, Message: "not drained: there is no other node that is ready"},
		)
		return nil
	}
	if err := plan.MayDrain(plan.Budget(p.engine.Config.Roll.MaxUnavailable, len(ready)), ready,
		p.changing()); err != nil {
		return fmt.Errorf("not drained (%s): %w", why, err)
	}
	return p.drain(ctx, m)
}

// changing returns the names of the machines that this run changes or removes. MayDrain expects those to be
// unavailable.
func (p *Prepared) changing() (names []string) {
	for _, m := range p.with(plan.Create, plan.Change, plan.Remove) {
		names = append(names, m.Name)
	}
	return names
}

const drainTimeout = 5 * time.Minute

// drain cordons a node and evicts its pods. The state records the cordon first, so that a later run uncordons the node
// if this one is interrupted.
func (p *Prepared) drain(ctx context.Context, m *machine) error {
	p.begin(m, "draining")
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := p.cordoning(ctx, m); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	err := p.live.Drain(ctx, m.Name, func(what string) {
		p.engine.say(Event{Kind: EventNote, Machine: m.Address, Message: "draining: " + what})
	})
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}

// cordoning records that this run cordons a node. It records nothing if the node is already cordoned, because a user
// who cordoned it by hand wants it to stay so.
func (p *Prepared) cordoning(ctx context.Context, m *machine) error {
	cordoned, err := p.live.Cordoned(ctx, m.Name)
	if err != nil || cordoned {
		return err
	}
	return p.note(m, func(s *state.Machine) { s.Cordoned = true })
}

// emptied keeps new pods off the nodes that this run removes. It deletes the Nodes of dead machines at once, so that
// their pods are recreated elsewhere and no disruption budget waits for them. It cordons the living ones. What fails
// here is done when the machine is removed.
func (p *Prepared) emptied(ctx context.Context, removed []*machine) error {
	for _, m := range removed {
		if !m.Has(config.RoleNode) || p.fresh {
			continue
		}
		var err error
		if m.dead != nil {
			err = p.live.Forget(ctx, m.Name)
		} else if m.tended() {
			if err = p.cordoning(ctx, m); err == nil {
				err = p.live.Cordon(ctx, m.Name)
			}
		}
		if err != nil && interrupted(ctx) {
			return ErrInterrupted
		}
		if err != nil { // the API does not answer, and would not for the other nodes
			p.engine.say(
				Event{
					Kind:    EventNote,
					Machine: m.Address,
					Message: "pods of nodes that go are seen to later: " + err.Error(),
				},
			)
			return nil
		}
	}
	return nil
}

const readyTimeout = 2 * time.Minute

// back uncordons a node once it is ready.
func (p *Prepared) back(ctx context.Context, m *machine) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		ready, err := p.live.Nodes(ctx)
		is, there := ready[m.Name]
		if err == nil && (is == "True" || !there) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf(
				"it is not ready %s after its change, and takes no pods meanwhile: see journalctl -u kubelet there, "+
					"then apply again",
				readyTimeout,
			)
		case <-tick.C:
		}
	}
	if err := p.live.Uncordon(ctx, m.Name); err != nil {
		return fmt.Errorf("let it take pods again: %w", err)
	}
	p.engine.say(Event{Kind: EventNote, Machine: m.Address, Message: "takes pods again"})
	return p.note(m, func(s *state.Machine) { s.Cordoned = false })
}

// known returns the state's entry for a machine. It takes writing, since other machines are recorded in parallel.
func (p *Prepared) known(m *machine) state.Machine {
	writing.Lock()
	defer writing.Unlock()
	return p.State.Machines[m.Address]
}

// note changes the state's entry for a machine and writes the state.
func (p *Prepared) note(m *machine, change func(*state.Machine)) error {
	return p.write(func() {
		s := p.State.Machines[m.Address]
		change(&s)
		p.State.Machines[m.Address] = s
	})
}

// drained reports whether an earlier run has drained a machine and was interrupted before it uncordoned it.
func (p *Prepared) drained(m *machine) bool {
	return p.known(m).Cordoned && slices.Contains([]string{plan.Change, plan.Create}, m.action)
}
