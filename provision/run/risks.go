package run

import (
	"context"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// riskyActions returns the actions of this run before which a snapshot of the store is taken: those that remove or
// restart a member, and those that write all values again.
func (p *Prepared) riskyActions() (list []string) {
	if p.isNewCluster || p.engine.IsDestroy || p.engine.IsRefreshOnly || len(p.State.Etcd) == 0 ||
		p.State.Restore != nil { // a snapshot of a store that was just restored exists
		return nil
	}
	for _, m := range p.session.Machines {
		_, member := p.State.Etcd[m.Name]
		if !member || !m.HasRole(config.RoleControlPlane) && !p.isDemoted(m) {
			continue
		}
		switch {
		case p.isDemoted(m), m.Action == plan.Remove:
			list = append(list, "the removal of "+m.Name+"'s member")
		case m.Action == plan.Replace:
			list = append(list, "the replacement of "+m.Name+"'s member")
		case m.Action == plan.Change && slices.Contains(plan.RestartedDaemons(m.Changes), "etcd"):
			list = append(list, "the restart of "+m.Name+"'s member")
		}
	}
	for _, name := range p.rotationNames() {
		if r := p.State.Rotations[name]; r.Phase == state.PhaseTrust || r.IsOver(p.engine.now()) {
			list = append(list, "the replacement of "+name)
		}
	}
	if !p.State.Keys.Encryption.IsUpToDate(p.engine.Config.Encryption) {
		list = append(list, "the change of the encryption key")
	}
	return list
}

// riskLine returns the plan's line about the snapshot, or "" if none is taken.
func riskLine(risks []string) string {
	if len(risks) == 0 {
		return ""
	}
	return "A snapshot of the store is taken before " + etcd.SummarizeRisks(risks) + "."
}

// snapshotBeforeRisks takes a snapshot of the store if this run has risky actions.
func (p *Prepared) snapshotBeforeRisks(ctx context.Context) error {
	risks := p.riskyActions()
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
