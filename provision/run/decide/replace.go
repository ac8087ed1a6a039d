package decide

import (
	"fmt"
	"slices"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// CheckReplaceable returns an error if an address in -replace cannot be replaced or does not exist.
func (p *Situation) CheckReplaceable() error {
	for _, t := range p.Options.Replaces {
		found := slices.ContainsFunc(p.Machines, func(m *session.Machine) bool {
			return m.Action == plan.Change && (m.Address == t || strings.HasPrefix(m.Address, t+"["))
		}) ||
			slices.ContainsFunc(p.State.Objects,
				func(o state.Object) bool { return o.Address == t && p.Options.IsSelected(t) })
		if !found {
			return fmt.Errorf("-replace %s: %s", t, irreplaceableReason(p, t))
		}
	}
	if len(p.ControlPlaneOf(p.WithAction(plan.Change))) > 0 && len(p.Config.ControlPlane()) == 1 &&
		slices.ContainsFunc(
			p.Machines,
			func(m *session.Machine) bool {
				return m.HasRole(config.RoleControlPlane) && p.Options.IsReplaced(m.Address)
			},
		) {
		return fmt.Errorf("-replace: the only machine of the control plane has the cluster's store: add others " +
			"first, or destroy the cluster and apply again")
	}
	return nil
}

// irreplaceableReason returns why this run cannot replace the machine, workload or object at an address.
func irreplaceableReason(p *Situation, address string) string {
	named := func(a string) bool { return a == address || strings.HasPrefix(a, address+"[") }
	applied, declared := false, false
	for a, m := range p.State.Machines {
		applied = applied || named(a) && m.HasJoined
	}
	for _, o := range p.State.Objects {
		applied = applied || named(o.Address)
	}
	for _, m := range p.Config.Machines {
		declared = declared || named(m.Address)
	}
	for _, w := range p.Config.Workloads {
		declared = declared || named(w.Address)
	}
	for _, o := range p.Config.Objects {
		declared = declared || named(o.Address)
	}
	switch {
	case applied && declared && !p.Options.IsSelected(address) && len(p.Options.Targets) > 0 &&
		!slices.ContainsFunc(p.Options.Targets, func(t string) bool { return config.Includes(t, address) }):
		return "-target leaves it out of this run. Name it in -target as well"
	case applied && declared && !p.Options.IsSelected(address):
		return "-exclude leaves it out of this run"
	case applied && !declared:
		return "it is no longer declared, and apply removes it"
	case declared:
		return "it has not been applied yet, and apply creates it without -replace"
	}
	return "there is no such machine, workload or object, neither declared nor applied before"
}
