package run

import (
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// wantedSteps returns the steps that this run takes on a machine.
func (p *Prepared) wantedSteps(m *session.Machine) ([]step.Step, error) {
	if m.Action == plan.Remove {
		return role.Clean(), nil
	}
	return p.stepsOf(m)
}

// stepsOf returns the steps that make a machine as declared. It holds the ledger, because other machines that finish
// change the state meanwhile.
func (p *Prepared) stepsOf(m *session.Machine) (steps []step.Step, err error) {
	p.ledger.View(func(s *state.State) { steps, err = p.stepsByState(s, m) })
	return steps, err
}

func (p *Prepared) stepsByState(s *state.State, m *session.Machine) ([]step.Step, error) {
	revoked, err := p.lists.Current(s, p.engine.now())
	if err != nil {
		return nil, err
	}
	steps, err := role.Steps(
		role.Input{
			Cluster:        p.engine.Config,
			Machine:        m.Machine,
			Facts:          m.Facts,
			State:          s,
			Files:          p.engine.Bundle,
			Release:        p.engine.Bundle.Release(),
			Revoked:        revoked,
			IsWindowClosed: p.situation.IsWindowClosed(),
		},
	)
	p.renewals.SetTimes(s, m.Machine, steps)
	return steps, err
}
