package session

import (
	"context"
	"errors"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
)

// ClaimAll records this run on all machines that it changes, and on those of the control plane, before it changes
// anything. It fails if another run changed one of them after this run planned, as when two operators have copies of
// the state.
func (s *Session) ClaimAll(ctx context.Context) error {
	return s.ForEach(ctx, Filter(s.Machines, func(m *Machine) bool {
		return m.IsConnected() && (m.Action != plan.None || m.HasRole(config.RoleControlPlane))
	}), s.claim)
}

// claim claims one machine. It connects again if the connection was lost while the user read the plan. A machine
// that can no longer be reached is left out of the run, as in later phases.
func (s *Session) claim(ctx context.Context, m *Machine) error {
	for attempt := 1; ; attempt++ {
		err := m.Agent.Apply(ctx, nil, nil)
		if !errors.Is(err, agent.ErrLost) {
			return err
		}
		if attempt < MaxAttempts && ctx.Err() == nil {
			s.reportLost(m)
			if err = s.Reconnect(ctx, m, attempt); err == nil {
				continue
			}
		}
		return s.LeaveOut(ctx, m, err)
	}
}
