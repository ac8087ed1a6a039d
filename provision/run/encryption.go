package run

import (
	"context"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
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
		p.session.Report(
			report.Event{
				Kind: report.Note,
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
	if err := p.session.ForEach(ctx, control, func(ctx context.Context, m *session.Machine) error {
		return m.Agent.Apply(ctx, []step.Step{role.AwaitRewritten(m.IP)}, nil)
	}); err != nil {
		return err
	}
	e.Drop()
	return p.applyEncryption(ctx, control)
}

// reachedControl returns the machines of the control plane, or nil unless this run reaches all of them.
func (p *Prepared) reachedControl() (list []*session.Machine) {
	for _, m := range p.session.Machines {
		if m.Agent != nil && m.UnreachedReason == nil && m.Action != plan.Remove &&
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
func (p *Prepared) applyEncryption(ctx context.Context, control []*session.Machine) error {
	file, err := role.Encryption(p.State)
	if err != nil {
		return err
	}
	if err := p.ledger.Write(); err != nil {
		return err
	}
	return p.session.ForEach(ctx, control, func(ctx context.Context, m *session.Machine) error {
		return m.Agent.Apply(ctx, []step.Step{file, role.AwaitEncryptionInUse(m.IP)}, nil)
	})
}
