package session

import (
	"context"

	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/step"
)

// Apply applies steps on a machine, and reports each.
func (s *Session) Apply(ctx context.Context, m *Machine, steps []step.Step) error {
	return m.Agent.Apply(ctx, steps, func(done agent.Progress) {
		c := done.Change
		s.Report(report.Event{Kind: report.Step, Machine: m.Address, Change: &c})
	})
}

// ReportAction reports that the action of a machine begins.
func (s *Session) ReportAction(m *Machine) {
	what := ""
	switch m.Action {
	case plan.Create:
		what = "creating"
	case plan.Change:
		what = "changing"
	case plan.Remove:
		what = "removing"
	}
	s.ReportBegin(m, what)
}
