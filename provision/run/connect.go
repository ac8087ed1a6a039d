package run

import (
	"context"
	"errors"
	"slices"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
)

func (p *Prepared) connect(ctx context.Context) error {
	var skipped skippedError
	if len(p.session.Machines) > 0 {
		p.session.Report(report.Event{Kind: report.Phase, Message: "connecting to " + plan.Number(len(p.session.Machines), "machine")})
	}
	err := p.session.ForEach(ctx, p.session.Machines, func(ctx context.Context, m *session.Machine) error {
		err := p.session.Connect(ctx, m)
		if err != nil && ctx.Err() == nil && p.engine.canSkip(m) {
			skipped.add(m, err)
			return nil
		}
		if err != nil && ctx.Err() == nil && (p.engine.IsPlanOnly || m.Action == plan.Remove) {
			m.UnreachedReason = err // the machine is removed without a connection, or only a plan is wanted
			return nil
		}
		return err
	})
	if session.IsInterrupted(ctx) {
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
	for _, m := range p.session.Machines {
		if _, member := p.State.Etcd[m.Name]; member && p.State.Machines[m.Address].HasJoined &&
			m.Facts.EtcdCluster != "" &&
			!slices.Contains(p.State.FormerStores, m.Facts.EtcdCluster) {
			p.State.EtcdCluster = m.Facts.EtcdCluster
			return
		}
	}
}
