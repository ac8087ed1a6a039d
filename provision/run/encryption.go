package run

import (
	"context"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// changeEncryption changes how values are encrypted in the store. All API servers already have the new key for reading.
// Each move is written to the state first, and all servers use it before the next move. So no server meets a value that
// it cannot read, and another run can continue an interrupted one.
func (p *Prepared) changeEncryption(ctx context.Context) error {
	e, want := &p.State.Keys.Encryption, p.engine.Config.Encryption
	if e.IsUpToDate(want) {
		return nil
	}
	control := p.reachedControl()
	if control == nil {
		p.engine.report(
			Event{
				Kind: EventNote,
				Message: "how values are encrypted in the store changes with the next apply that reaches the whole " +
					"control plane",
			},
		)
		return nil
	}
	if err := p.applyEncryption(ctx, control); err != nil {
		return err
	}
	e.Switch(want)
	if err := p.applyEncryption(ctx, control); err != nil {
		return err
	}
	if err := p.forEach(ctx, control, func(ctx context.Context, m *machine) error {
		return m.agent.Apply(ctx, []step.Step{role.AwaitRewritten(m.IP)}, nil)
	}); err != nil {
		return err
	}
	e.Drop()
	return p.applyEncryption(ctx, control)
}

// reachedControl returns the machines of the control plane, or nil unless this run reaches all of them.
func (p *Prepared) reachedControl() (list []*machine) {
	for _, m := range p.machines {
		if m.agent != nil && m.unreachedReason == nil && m.action != plan.Remove &&
			m.HasRole(config.RoleControlPlane) &&
			p.State.Machines[m.Address].HasJoined {
			list = append(list, m)
		}
	}
	if len(list) != len(p.engine.Config.ControlPlane()) {
		return nil
	}
	return list
}

// applyEncryption gives all API servers the encryption configuration of the state, and waits until they use it.
func (p *Prepared) applyEncryption(ctx context.Context, control []*machine) error {
	file, err := role.Encryption(p.State)
	if err != nil {
		return err
	}
	if err := p.engine.Store.Write(p.State); err != nil {
		return err
	}
	return p.forEach(ctx, control, func(ctx context.Context, m *machine) error {
		return m.agent.Apply(ctx, []step.Step{file, role.AwaitEncryptionInUse(m.IP)}, nil)
	})
}
