package health

import (
	"context"
	"fmt"
	"net"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// Health asks one machine of the control plane about the health of all of them, including those that this run does not
// reach.
func (g *Guard) Health(ctx context.Context, from *session.Machine) ([]plan.Health, error) {
	return g.healthOf(ctx, from, func(string) bool { return true })
}

func (g *Guard) healthOf(ctx context.Context, from *session.Machine,
	which func(name string) bool) ([]plan.Health, error) {
	var list []plan.Health
	var steps []step.Step
	members := role.EtcdMachines(g.Situation.Config, g.Situation.State)
	for _, m := range g.Situation.Config.ControlPlane() {
		if !g.Situation.State.Machines[m.Address].HasJoined || !which(m.Name) {
			continue
		}
		_, member := g.Situation.State.Etcd[m.Name]
		member = member && slices.ContainsFunc(members, func(e config.Machine) bool { return e.Name == m.Name })
		list = append(list, plan.Health{Name: m.Name, HasMember: member, IsReached: g.Session.IsReached(m.Name)})
		steps = append(
			steps,
			&step.ServerHealth{
				Name:   m.Name,
				URL:    "https://" + net.JoinHostPort(m.IP.String(), "6443") + "/readyz",
				Client: role.ServerClient,
			},
		)
		if member {
			steps = append(steps, &step.MemberHealth{Name: m.Name, Store: role.Member(m)})
		}
	}
	changes, err := from.Agent.Check(ctx, steps)
	if err != nil {
		return nil, fmt.Errorf("%s: look at the control plane's health: %w", from.Address, err)
	}
	for i, c := range changes {
		for j := range list {
			switch s := steps[i].(type) {
			case *step.ServerHealth:
				if s.Name == list[j].Name {
					list[j].API = c.Note
				}
			case *step.MemberHealth:
				if s.Name == list[j].Name {
					list[j].Etcd = c.Note
				}
			}
		}
	}
	return list, nil
}
