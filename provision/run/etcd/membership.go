package etcd

import (
	"context"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// DescribeMembership returns how etcd's list of members differs from the machines that should have a member. It returns
// "" if there is no difference.
func (a *Access) DescribeMembership(ctx context.Context) string {
	return DescribeMembership(ctx, a.Config, a.State, a.Session.Machines)
}

// DescribeMembership returns how etcd's list of members differs from the machines that should have a member. It returns
// "" if there is no difference, or if no machine can be asked.
func DescribeMembership(ctx context.Context, c *config.Cluster, s *state.State, machines []*session.Machine) string {
	var through *session.Machine
	look := &step.Membership{Store: role.Store(c, s, UnstartedNames(s, machines)...)}
	for _, m := range machines {
		recorded := s.Machines[m.Address]
		if !recorded.HasJoined || !m.IsConnected() {
			continue
		}
		if through == nil && m.HasRole(config.RoleControlPlane) && recorded.Machine.HasRole(config.RoleControlPlane) {
			through = m
		}
		if _, member := s.Etcd[m.Name]; member && m.Action != plan.Create && !HasLostData(s, m) {
			look.Required = append(look.Required, m.Name)
		}
	}
	if through == nil {
		return ""
	}
	for _, m := range c.ControlPlane() {
		look.Allowed = append(look.Allowed, m.Name)
	}
	for _, m := range s.Machines {
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
