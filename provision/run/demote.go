package run

import (
	"context"
	"fmt"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
)

// demoted reports whether a machine leaves the control plane and stays in the cluster.
func (p *Prepared) demoted(m *machine) bool {
	return m.action == plan.Change && !m.Has(config.RoleControlPlane) && p.known(m).Machine.Has(config.RoleControlPlane)
}

// demote removes machines from the control plane, one after another. Before it runs, the rest of the control plane and
// the nodes' configuration are as declared, so that nothing uses these machines any more.
func (p *Prepared) demote(ctx context.Context, list []*machine) error {
	for _, m := range list {
		if err := p.each(ctx, []*machine{m}, p.demoteOne); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(list, func(m *machine) bool { return m.makes }) {
		return p.label(ctx)
	}
	return nil
}

// demoteOne drains a machine's API server, removes the machine's etcd member, and then changes the machine, which
// removes its keys. The next run continues after an interruption, because the state lists the machine as a
// control-plane machine until the end.
func (p *Prepared) demoteOne(ctx context.Context, m *machine) (err error) {
	defer func() { p.failed(ctx, m, err) }()
	p.begin(m, "leaving the control plane")
	from := p.survivor()
	if from == nil {
		return fmt.Errorf(
			"it stays in the control plane: no machine of the control plane that stays is part of this run: select " +
				"one, too",
		)
	}
	if err := p.patiently(ctx, from,
		func(list []plan.Health) error { return plan.MayLeave(m.Name, list) }); err != nil {
		return fmt.Errorf("it stays in the control plane: %w", err)
	}
	if err := m.agent.Apply(ctx, role.StopControlPlane(), nil); err != nil {
		return fmt.Errorf("stop its API server: %w", err)
	}
	if err := p.leaveOne(ctx, m); err != nil {
		return err
	}
	if err := p.write(func() { delete(p.State.Etcd, m.Name) }); err != nil {
		return err
	}
	// The steps that were checked before would make the member leave with the machine's own credentials, which are
	// removed now.
	if err := p.checkOne(ctx, m); err != nil {
		return err
	}
	return p.roll(ctx, m)
}
