package run

import (
	"context"

	"clusterctl/hcl/config"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
)

// snapshotBeforeRisks takes a snapshot of the store if this run has risky actions.
func (p *Prepared) snapshotBeforeRisks(ctx context.Context) error {
	risks := p.situation.RiskyActions()
	if len(risks) == 0 {
		return nil
	}
	if p.engine.SkipsSnapshot {
		p.session.Report(report.Event{Kind: report.Note, Message: "no snapshot of the store is taken, as -no-snapshot says"})
		return nil
	}
	control := session.Filter(p.session.Machines,
		func(m *session.Machine) bool { return m.IsConnected() && m.HasRole(config.RoleControlPlane) })
	a := &etcd.Access{Session: p.session.With(control), Ledger: p.ledger, State: p.State, Config: p.engine.Config}
	return a.SnapshotBefore(ctx, risks)
}
