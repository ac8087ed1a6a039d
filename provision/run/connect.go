package run

import (
	"context"
	"errors"
	"slices"
	"time"

	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
)

func (p *Prepared) connect(ctx context.Context) error {
	var skipped skippedError
	if len(p.machines) > 0 {
		p.engine.say(Event{Kind: EventPhase, Message: "connecting to " + plan.Number(len(p.machines), "machine")})
	}
	err := p.each(ctx, p.machines, func(ctx context.Context, m *machine) error {
		err := p.reach(ctx, m)
		if err != nil && ctx.Err() == nil && p.engine.skips(m) {
			skipped.add(m, err)
			return nil
		}
		if err != nil && ctx.Err() == nil && (p.engine.Look || m.action == plan.Remove) {
			m.dead = err // the machine is removed without a connection, or only a plan is wanted
			return nil
		}
		return err
	})
	if interrupted(ctx) {
		return err
	}
	// Report the problems of the other machines in the same error.
	err = errors.Join(err, p.identify())
	p.recognize()
	if err = errors.Join(err, p.preflight()); err == nil && len(skipped.list) > 0 {
		return &skipped
	}
	return err
}

// recognize records the store's cluster ID as reported by a machine that has a member of it.
func (p *Prepared) recognize() {
	for _, m := range p.machines {
		if _, member := p.State.Etcd[m.Name]; member && p.State.Machines[m.Address].Joined &&
			m.facts.EtcdCluster != "" &&
			!slices.Contains(p.State.FormerStores, m.facts.EtcdCluster) {
			p.State.EtcdCluster = m.facts.EtcdCluster
			return
		}
	}
}

func (p *Prepared) reach(ctx context.Context, m *machine) error {
	a, err := p.engine.Dial(ctx, m.Machine)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	before := p.engine.now()
	m.facts, err = a.Facts(ctx)
	if after := p.engine.now(); m.facts.Clock.Before(
		before,
	) { // the clock was read between the two: the time on the network is not an error of the clock
		m.asked = before
	} else if m.asked = m.facts.Clock; m.asked.After(after) {
		m.asked = after
	}
	if err != nil {
		_ = a.Close()
		return hangs(ctx, factsTimeout, err)
	}
	if m.saw == nil { // a reconnection keeps the first Saw, so that it cannot override a run that came in between
		m.saw = &agent.Turn{Run: p.engine.Run, Who: p.engine.Who, Saw: m.facts.LastRun, Boot: m.facts.Boot}
	}
	if p.engine.Run != "" {
		a.Take(*m.saw)
	}
	m.agent = a
	if b, ok := a.(bringer); ok && m.brought == 0 {
		m.brought = b.Brought()
	}
	p.engine.say(Event{Kind: EventConnect, Machine: m.Address, Message: plan.Describe(m.facts)})
	return nil
}

const checkTimeout = 2 * time.Minute
