package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
)

// repairAll repairs what does not work, on all machines at once and before anything else: expired or untrusted
// certificates and dead units. Machines that change one after another, each waiting for the others to be well, could
// never recover from certificates that have expired everywhere. What cannot be repaired is reported, and is met again
// when the machine changes. Whether the run may continue then depends on the health of the control plane.
func (p *Prepared) repairAll(ctx context.Context) error {
	if p.situation.IsNewCluster {
		return nil
	}
	var list []*session.Machine
	for _, m := range p.session.WithAction(plan.Change) {
		if len(plan.RepairSteps(m.Steps, m.Changes)) > 0 {
			list = append(list, m)
		}
	}
	return p.session.ForEach(ctx, list, p.repairMachine)
}

func (p *Prepared) repairMachine(ctx context.Context, m *session.Machine) error {
	part := m.WithSteps(plan.RepairSteps(m.Steps, m.Changes))
	p.session.ReportBegin(m, "mending")
	err := p.session.SendFiles(ctx, part)
	if err == nil {
		err = p.issuer.Issue(part)
	}
	if err == nil {
		err = m.Agent.Apply(ctx, part.Steps, func(done agent.Progress) {
			c := done.Change
			p.session.Report(report.Event{Kind: report.Step, Machine: m.Address, Change: &c})
		})
	}
	if err != nil && ctx.Err() == nil {
		m.RepairError = err
		p.session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "not all of it is mended: " + err.Error()})
	}
	if errors.Is(err, agent.ErrUnresponsive) {
		return p.session.LeaveOut(ctx, m, err)
	}
	if errors.Is(err, agent.ErrLost) {
		return p.session.LeaveOut(ctx, m, p.session.ReconnectAndResend(ctx, m, 1))
	}
	return p.session.LeaveOut(ctx, m, p.session.Check(ctx, m)) // the repairs decide what is left to do
}

// addUnrepaired adds to err what could not be mended on machines of the control plane.
func (p *Prepared) addUnrepaired(err error) error {
	var why []string
	for _, m := range p.session.Machines {
		if m.RepairError != nil && m.HasRole(config.RoleControlPlane) {
			why = append(why, fmt.Sprintf("%s: %v", m.Address, m.RepairError))
		}
	}
	if err == nil || len(why) == 0 {
		return err
	}
	slices.Sort(why)
	return fmt.Errorf("%w\nWhat could not be mended before:\n%s", err, strings.Join(why, "\n"))
}
