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
		p.engine.report(Event{Kind: EventPhase, Message: "connecting to " + plan.Number(len(p.machines), "machine")})
	}
	err := p.forEach(ctx, p.machines, func(ctx context.Context, m *machine) error {
		err := p.connectMachine(ctx, m)
		if err != nil && ctx.Err() == nil && p.engine.canSkip(m) {
			skipped.add(m, err)
			return nil
		}
		if err != nil && ctx.Err() == nil && (p.engine.IsPlanOnly || m.action == plan.Remove) {
			m.unreachedReason = err // the machine is removed without a connection, or only a plan is wanted
			return nil
		}
		return err
	})
	if isInterrupted(ctx) {
		return err
	}
	// Report the problems of the other machines in the same error.
	err = errors.Join(err, p.checkIdentities())
	p.recordEtcdCluster()
	if err = errors.Join(err, p.preflight()); err == nil && len(skipped.list) > 0 {
		return &skipped
	}
	return err
}

// recordEtcdCluster records the store's cluster ID as reported by a machine that has a member of it.
func (p *Prepared) recordEtcdCluster() {
	for _, m := range p.machines {
		if _, member := p.State.Etcd[m.Name]; member && p.State.Machines[m.Address].HasJoined &&
			m.facts.EtcdCluster != "" &&
			!slices.Contains(p.State.FormerStores, m.facts.EtcdCluster) {
			p.State.EtcdCluster = m.facts.EtcdCluster
			return
		}
	}
}

func (p *Prepared) connectMachine(ctx context.Context, m *machine) error {
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
		m.factsReadAt = before
	} else if m.factsReadAt = m.facts.Clock; m.factsReadAt.After(after) {
		m.factsReadAt = after
	}
	if err != nil {
		_ = a.Close()
		return hangError(ctx, factsTimeout, err)
	}
	if m.turn == nil { // a reconnection keeps the first Saw, so that it cannot override a run that came in between
		m.turn = &agent.Turn{Run: p.engine.Run, Operator: p.engine.Operator, LastSeen: m.facts.LastRun,
			Boot: m.facts.Boot}
	}
	if p.engine.Run != "" {
		a.SetTurn(*m.turn)
	}
	m.agent = a
	if b, ok := a.(programSender); ok && m.sentBytes == 0 {
		m.sentBytes = b.SentBytes()
	}
	p.engine.report(Event{Kind: EventConnect, Machine: m.Address, Message: plan.Describe(m.facts)})
	return nil
}

const checkTimeout = 2 * time.Minute
