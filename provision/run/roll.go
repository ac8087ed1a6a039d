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

// nodes changes machines that are no control plane of a cluster that is there, and no more of those whose daemons
// restart once one has failed.
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

// goesOn reports whether other nodes are changed although one has failed.
func (p *Prepared) goesOn() bool { return p.engine.Config.Roll.OnFailure == config.OnFailureContinue }

func (p *Prepared) count(role string) (n int) {
	for _, m := range p.engine.Config.Machines {
		if m.Has(role) {
			n++
		}
	}
	return n
}

// roll changes one machine: without its pods where the change needs that.
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

// forgetFormer takes away the Node of the machine that had a machine's name before it, as one that was installed anew
// finds it. Its kubelet would go on with that Node, which keeps its provider ID, and with pods of which nothing is
// there. A Node that is ready is left to whoever drains it, unless nothing of the cluster is on the machine. An API
// that is down is mended by this run: it keeps no machine from being made.
func (p *Prepared) forgetFormer(ctx context.Context, m *machine) {
	now := p.engine.Config.Inventory[m.Name]
	if now.ProviderID == "" || m.action != plan.Change && !p.engine.replaced(m.Address) {
		return // nobody had the name
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

// blank reports whether nothing of a cluster is on a machine.
func blank(m *machine) bool { return m.agent != nil && m.facts.ClusterCA == "" }

// clear moves a node's pods away, when there is anywhere for them to go.
func (p *Prepared) clear(ctx context.Context, m *machine, why string) error {
	ready, err := p.live.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	switch is, there := ready[m.Name]; {
	case !there:
		return nil
	case is == "Unknown": // nobody is there to end its pods, and they are not looked after until it is mended
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

// changing names the machines of this run: those that are changed are mended by it, those that go are on
// their way.
func (p *Prepared) changing() (names []string) {
	for _, m := range p.with(plan.Create, plan.Change, plan.Remove) {
		names = append(names, m.Name)
	}
	return names
}

const drainTimeout = 5 * time.Minute

// drain cordons a node, which the state knows first, so that a later run takes it back when this one is
// cut off, and evicts its pods.
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

// cordoning writes down that a node is cordoned by this run, unless it is already: who has cordoned it by hand means
// it.
func (p *Prepared) cordoning(ctx context.Context, m *machine) error {
	cordoned, err := p.live.Cordoned(ctx, m.Name)
	if err != nil || cordoned {
		return err
	}
	return p.note(m, func(s *state.Machine) { s.Cordoned = true })
}

// emptied has no pods come to the nodes that this run removes: the Node of one that is dead goes at once, so that what
// ran there is made anew elsewhere and no budget waits for it, and one that is there takes no new pods. What cannot be
// done yet is done when its turn comes.
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
		if err != nil { // the API is not there, and would not be for the others
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

// back lets a node have pods again, once it is ready.
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

// known is what the state says of a machine, while others are written down in it.
func (p *Prepared) known(m *machine) state.Machine {
	writing.Lock()
	defer writing.Unlock()
	return p.State.Machines[m.Address]
}

// note changes what the state says of a machine, and writes it.
func (p *Prepared) note(m *machine, change func(*state.Machine)) error {
	return p.write(func() {
		s := p.State.Machines[m.Address]
		change(&s)
		p.State.Machines[m.Address] = s
	})
}

// drained says whether an earlier run has drained a machine and was cut off before it took it back.
func (p *Prepared) drained(m *machine) bool {
	return p.known(m).Cordoned && slices.Contains([]string{plan.Change, plan.Create}, m.action)
}
