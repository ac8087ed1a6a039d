package decide

import (
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/state"
)

// RiskyActions returns the actions of this run before which a snapshot of the store is taken: those that remove or
// restart a member, and those that write all values again.
func (p *Situation) RiskyActions() (list []string) {
	if p.IsNewCluster || p.Options.IsDestroy || p.Options.IsRefreshOnly || len(p.State.Etcd) == 0 ||
		p.State.Restore != nil { // a snapshot of a store that was just restored exists
		return nil
	}
	for _, m := range p.Machines {
		_, member := p.State.Etcd[m.Name]
		if !member || !m.HasRole(config.RoleControlPlane) && !p.IsDemoted(m) {
			continue
		}
		switch {
		case p.IsDemoted(m), m.Action == plan.Remove:
			list = append(list, "the removal of "+m.Name+"'s member")
		case m.Action == plan.Replace:
			list = append(list, "the replacement of "+m.Name+"'s member")
		case m.Action == plan.Change && slices.Contains(plan.RestartedDaemons(m.Changes), "etcd"):
			list = append(list, "the restart of "+m.Name+"'s member")
		}
	}
	for _, name := range RotationNames(p.State) {
		if r := p.State.Rotations[name]; r.Phase == state.PhaseTrust || r.IsOver(p.Now()) {
			list = append(list, "the replacement of "+name)
		}
	}
	if !p.State.Keys.Encryption.IsUpToDate(p.Config.Encryption) {
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
