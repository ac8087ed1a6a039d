package rotation

import (
	"context"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// ChangeEncryption changes how values are encrypted in the store. All API servers already have the new key for reading.
// Each move is written to the state first, and all servers use it before the next move. So no server meets a value that
// it cannot read, and another run can continue an interrupted one.
func (t *Rotator) ChangeEncryption(ctx context.Context) error {
	want := t.Situation.Config.Encryption
	if t.Situation.State.Keys.Encryption.IsUpToDate(want) {
		return nil
	}
	control := t.reachedControl()
	if control == nil {
		t.Session.Report(
			report.Event{
				Kind: report.Note,
				Message: "how values are encrypted in the store changes with the next apply that reaches the whole " +
					"control plane",
			},
		)
		return nil
	}
	if err := t.applyEncryption(ctx, control); err != nil {
		return err
	}
	t.Ledger.Record(func(s *state.State) { s.Keys.Encryption.Switch(want) })
	if err := t.applyEncryption(ctx, control); err != nil {
		return err
	}
	if err := t.Session.ForEach(ctx, control, func(ctx context.Context, m *session.Machine) error {
		return m.Agent.Apply(ctx, []step.Step{role.AwaitRewritten(m.IP)}, nil)
	}); err != nil {
		return err
	}
	t.Ledger.Record(func(s *state.State) { s.Keys.Encryption.Drop() })
	return t.applyEncryption(ctx, control)
}

// reachedControl returns the machines of the control plane, or nil unless this run reaches all of them.
func (t *Rotator) reachedControl() (list []*session.Machine) {
	for _, m := range t.Session.Machines {
		if m.Agent != nil && m.UnreachedReason == nil && m.Action != plan.Remove &&
			m.HasRole(config.RoleControlPlane) &&
			t.Situation.State.Machines[m.Address].HasJoined {
			list = append(list, m)
		}
	}
	if len(list) != len(t.Situation.Config.ControlPlane()) {
		return nil
	}
	return list
}

// applyEncryption gives all API servers the encryption configuration of the state, and waits until they use it.
func (t *Rotator) applyEncryption(ctx context.Context, control []*session.Machine) error {
	file, err := role.Encryption(t.Situation.State)
	if err != nil {
		return err
	}
	if err := t.Ledger.Write(); err != nil {
		return err
	}
	return t.Session.ForEach(ctx, control, func(ctx context.Context, m *session.Machine) error {
		return m.Agent.Apply(ctx, []step.Step{file, role.AwaitEncryptionInUse(m.IP)}, nil)
	})
}
