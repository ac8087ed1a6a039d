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
			m.dead = err // the cluster is rid of it without it; or only the plan is wanted
			return nil
		}
		return err
	})
	if interrupted(ctx) {
		return err
	}
	// What is wrong with the others is said at once as well.
	err = errors.Join(err, p.identify())
	p.recognize()
	if err = errors.Join(err, p.preflight()); err == nil && len(skipped.list) > 0 {
		return &skipped
	}
	return err
}

// recognize learns the store's id from a machine that has a member of it.
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
	) { // it was read somewhere between: what the way took is not its fault
		m.asked = before
	} else if m.asked = m.facts.Clock; m.asked.After(after) {
		m.asked = after
	}
	if err != nil {
		_ = a.Close()
		return hangs(ctx, factsTimeout, err)
	}
	if m.saw == nil { // a connection that is made again takes nobody's turn who came in between
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
