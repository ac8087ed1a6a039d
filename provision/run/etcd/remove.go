package etcd

import (
	"context"
	"fmt"
	"slices"

	"clusterctl/daemons/config/store"
	"clusterctl/hcl/config"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// Remove removes a member, given by its name or its ID in hex, that belongs to no machine of the cluster.
func (a *Access) Remove(ctx context.Context, member string) (store.Member, error) {
	list, err := a.Status(ctx)
	if err != nil {
		return store.Member{}, err
	}
	i := slices.IndexFunc(list, func(m store.Member) bool { return m.ID == member })
	if i < 0 {
		i = slices.IndexFunc(list, func(m store.Member) bool { return m.Name == member && member != "" })
	}
	if i < 0 {
		return store.Member{}, fmt.Errorf("the store has no member %s: clusterctl etcd members lists them", member)
	}
	for address, m := range a.State.Machines {
		if m.Machine.Name == list[i].Name && m.Machine.HasRole(config.RoleControlPlane) {
			return store.Member{}, fmt.Errorf("%s is the member of %s: take the machine, or its role control-plane, "+
				"out of the configuration and apply", list[i].Name, address)
		}
	}
	for _, m := range a.Config.ControlPlane() {
		if m.Name == list[i].Name {
			return store.Member{}, fmt.Errorf("%s is declared to be of the control plane (%s): take the machine, or "+
				"its role, out of the configuration and apply", list[i].Name, m.Address)
		}
	}
	through, err := a.reachMachine(ctx, "")
	if err != nil {
		return store.Member{}, err
	}
	leave := &step.EtcdLeave{
		Store: role.Store(a.Config, a.State),
		Name:  list[i].Name,
		ID:    list[i].ID,
	}
	if err := through.Agent.Apply(ctx, []step.Step{leave}, nil); err != nil {
		return store.Member{}, fmt.Errorf("%s: %w", through.Address, err)
	}
	return list[i], nil
}
