package run

import (
	"context"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// encrypt changes how values are encrypted in the store. All API servers have been given the new
// key by now, to read with. Each move is written down first and is in use by all of them before
// the next, so that nobody meets what it cannot read, and a run that is cut off is gone on with
// by another.
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

// wholeControl is the control plane, nil unless this run reaches all of it.
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

// layEncryption gives all API servers what the state says, and waits until they use it.
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
