package run

import (
	"context"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// describeMembership returns how etcd's list of members differs from the machines that should have a member. It returns
// "" if there is no difference, or if no machine can be asked.
func (p *Prepared) describeMembership(ctx context.Context) string {
	var through *session.Machine
	look := &step.Membership{Store: role.Store(p.engine.Config, p.State, p.unstartedNames()...)}
	for _, m := range p.session.Machines {
		known := p.ledger.Machine(m.Address)
		if !known.HasJoined || m.Agent == nil || m.UnreachedReason != nil {
			continue
		}
		if through == nil && m.HasRole(config.RoleControlPlane) && known.Machine.HasRole(config.RoleControlPlane) {
			through = m
		}
		if _, member := p.State.Etcd[m.Name]; member && m.Action != plan.Create && !p.hasLostData(m) {
			look.Required = append(look.Required, m.Name)
		}
	}
	if through == nil || p.isNewCluster {
		return ""
	}
	for _, m := range p.engine.Config.ControlPlane() {
		look.Allowed = append(look.Allowed, m.Name)
	}
	for _, m := range p.State.Machines {
		if m.Machine.HasRole(config.RoleControlPlane) && !slices.Contains(look.Allowed, m.Machine.Name) {
			look.Allowed = append(look.Allowed, m.Machine.Name)
		}
	}
	changes, err := through.Agent.Check(ctx, []step.Step{look})
	if err != nil || len(changes) == 0 || changes[0].Action == "" {
		return ""
	}
	return changes[0].Note + ". clusterctl etcd members lists them, and clusterctl etcd remove takes one out."
}
