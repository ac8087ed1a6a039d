package run

import (
	"context"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// membership returns how etcd's list of members differs from the machines that should have a member. It returns "" if
// there is no difference, or if no machine can be asked.
func (p *Prepared) membership(ctx context.Context) string {
	var through *machine
	look := &step.Membership{Store: role.Store(p.engine.Config, p.State, p.unstarted()...)}
	for _, m := range p.machines {
		known := p.known(m)
		if !known.Joined || m.agent == nil || m.dead != nil {
			continue
		}
		if through == nil && m.Has(config.RoleControlPlane) && known.Machine.Has(config.RoleControlPlane) {
			through = m
		}
		if _, member := p.State.Etcd[m.Name]; member && m.action != plan.Create && !p.lost(m) {
			look.Wanted = append(look.Wanted, m.Name)
		}
	}
	if through == nil || p.fresh {
		return ""
	}
	for _, m := range p.engine.Config.ControlPlane() {
		look.Known = append(look.Known, m.Name)
	}
	for _, m := range p.State.Machines {
		if m.Machine.Has(config.RoleControlPlane) && !slices.Contains(look.Known, m.Machine.Name) {
			look.Known = append(look.Known, m.Machine.Name)
		}
	}
	changes, err := through.agent.Check(ctx, []step.Step{look})
	if err != nil || len(changes) == 0 || changes[0].Action == "" {
		return ""
	}
	return changes[0].Note + ". clusterctl etcd members lists them, and clusterctl etcd remove takes one out."
}
