package rotation

import (
	"context"
	"fmt"

	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// SendRevocations makes all machines refuse the certificates that this run has revoked. A machine that is not reached
// receives the list with its next apply.
func (t *Rotator) SendRevocations(ctx context.Context) error {
	var lists map[string][]byte
	var err error
	t.Ledger.View(func(s *state.State) { lists, err = t.Lists.Current(s, t.Session.Now()) })
	if err != nil {
		return err
	}
	var stay []*session.Machine
	for _, m := range t.Session.Machines {
		if m.Agent != nil && m.UnreachedReason == nil && m.Action != plan.Remove &&
			t.Situation.State.Machines[m.Address].HasJoined {
			stay = append(stay, m)
		}
	}
	return t.Session.ForEach(ctx, stay, func(ctx context.Context, m *session.Machine) error {
		steps := role.Revocations(role.Input{Cluster: t.Situation.Config, Machine: m.Machine, Revoked: lists})
		if err := m.Agent.Apply(ctx, steps, nil); err != nil {
			return fmt.Errorf("send the machine the list of revoked certificates: %w", err)
		}
		return nil
	})
}
