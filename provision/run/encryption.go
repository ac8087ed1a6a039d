package run

import (
	"context"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// encrypt changes how values are encrypted in the store. All API servers already have the new key for reading. Each
// move is written to the state first, and all servers use it before the next move. So no server meets a value that it
// cannot read, and another run can continue an interrupted one.
func (p *Prepared) encrypt(ctx context.Context) error {
	e, want := &p.State.Keys.Encryption, p.engine.Config.Encryption
	if e.Settled(want) {
		return nil
	}
	control := p.wholeControl()
	if control == nil {
		p.engine.say(
			Event{
				Kind: EventNote,
				Message: "how values are encrypted in the store changes with the next apply that reaches the whole " +
					"control plane",
			},
		)
		return nil
	}
	if err := p.layEncryption(ctx, control); err != nil {
		return err
	}
	e.Switch(want)
	if err := p.layEncryption(ctx, control); err != nil {
		return err
	}
	if err := p.each(ctx, control, func(ctx context.Context, m *machine) error {
		return m.agent.Apply(ctx, []step.Step{role.Rewritten(m.IP)}, nil)
	}); err != nil {
		return err
	}
	e.Drop()
	return p.layEncryption(ctx, control)
}

// wholeControl returns the machines of the control plane, or nil unless this run reaches all of them.
func (p *Prepared) wholeControl() (list []*machine) {
	for _, m := range p.machines {
		if m.agent != nil && m.dead == nil && m.action != plan.Remove && m.Has(config.RoleControlPlane) &&
			p.State.Machines[m.Address].Joined {
			list = append(list, m)
		}
	}
	if len(list) != len(p.engine.Config.ControlPlane()) {
		return nil
	}
	return list
}

// layEncryption gives all API servers the encryption configuration of the state, and waits until they use it.
func (p *Prepared) layEncryption(ctx context.Context, control []*machine) error {
	file, err := role.Encryption(p.State)
	if err != nil {
		return err
	}
	if err := p.engine.Store.Write(p.State); err != nil {
		return err
	}
	return p.each(ctx, control, func(ctx context.Context, m *machine) error {
		return m.agent.Apply(ctx, []step.Step{file, role.EncryptionInUse(m.IP)}, nil)
	})
}
