package run

import (
	"context"
	"fmt"

	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// sendRevocations makes all machines refuse the certificates that this run has revoked. A machine that is not reached
// receives the list with its next apply.
func (p *Prepared) sendRevocations(ctx context.Context) error {
	var lists map[string][]byte
	var err error
	p.ledger.View(func(s *state.State) { lists, err = p.lists.Current(s, p.engine.now()) })
	if err != nil {
		return err
	}
	var stay []*session.Machine
	for _, m := range p.session.Machines {
		if m.Agent != nil && m.UnreachedReason == nil && m.Action != plan.Remove &&
			p.State.Machines[m.Address].HasJoined {
			stay = append(stay, m)
		}
	}
	return p.session.ForEach(ctx, stay, func(ctx context.Context, m *session.Machine) error {
		steps := role.Revocations(role.Input{Cluster: p.engine.Config, Machine: m.Machine, Revoked: lists})
		if err := m.Agent.Apply(ctx, steps, nil); err != nil {
			return fmt.Errorf("send the machine the list of revoked certificates: %w", err)
		}
		return nil
	})
}

// hasFormerUsers reports whether a machine has a certificate of a user that daemons of former releases shared.
func (p *Prepared) hasFormerUsers() (has bool) {
	p.ledger.View(func(s *state.State) { has = certificate.HasFormerUsers(s) })
	return has
}

// hasReplacedFormerUsers reports whether this run replaced the last certificates of such users.
func (p *Prepared) hasReplacedFormerUsers() (replaced bool) {
	p.ledger.View(func(s *state.State) { replaced = certificate.HasReplacedFormerUsers(s) })
	return replaced
}

// revokeSuperseded revokes the certificates that this run has replaced. It reports whether there were any.
func (p *Prepared) revokeSuperseded() (some bool) {
	p.ledger.Record(func(s *state.State) {
		some = certificate.RevokeSuperseded(s, p.session.Machines, p.engine.now())
	})
	return some
}

// dropCompletedRenewals removes the renewals that are complete on all their machines from s.
func (p *Prepared) dropCompletedRenewals(s *state.State) {
	_, missing := p.situation.RemainingCluster()
	s.Renewals = certificate.IncompleteRenewals(s, missing)
}
