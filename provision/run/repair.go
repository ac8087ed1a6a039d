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
)

// repairAll repairs what does not work, on all machines at once and before anything else: expired or untrusted
// certificates and dead units. Machines that change one after another, each waiting for the others to be well, could
// never recover from certificates that have expired everywhere. What cannot be repaired is reported, and is met again
// when the machine changes. Whether the run may continue then depends on the health of the control plane.
func (p *Prepared) repairAll(ctx context.Context) error {
	if p.isNewCluster {
		return nil
	}
	var list []*machine
	for _, m := range p.withAction(plan.Change) {
		if len(plan.RepairSteps(m.steps, m.changes)) > 0 {
			list = append(list, m)
		}
	}
	return p.forEach(ctx, list, p.repairMachine)
}

func (p *Prepared) repairMachine(ctx context.Context, m *machine) error {
	part := m.withSteps(plan.RepairSteps(m.steps, m.changes))
	p.reportBegin(m, "mending")
	err := p.sendFiles(ctx, part)
	if err == nil {
		err = p.issueCertificates(part)
	}
	if err == nil {
		err = m.agent.Apply(ctx, part.steps, func(done agent.Progress) {
			c := done.Change
			p.engine.report(Event{Kind: EventStep, Machine: m.Address, Change: &c})
		})
	}
	if err != nil && ctx.Err() == nil {
		m.repairError = err
		p.engine.report(Event{Kind: EventNote, Machine: m.Address, Message: "not all of it is mended: " + err.Error()})
	}
	if errors.Is(err, agent.ErrUnresponsive) {
		return p.leaveOut(ctx, m, err)
	}
	if errors.Is(err, agent.ErrLost) {
		return p.leaveOut(ctx, m, p.reconnectAndResend(ctx, m, 1))
	}
	return p.leaveOut(ctx, m, p.checkMachine(ctx, m)) // the repairs decide what is left to do
}

// describeRepairs describes what will be mended on a machine before other changes, or returns "".
func (p *Prepared) describeRepairs(m *machine) string {
	if p.isNewCluster {
		return ""
	}
	return plan.DescribeRepairs(plan.RepairSteps(m.steps, m.changes), m.steps, m.changes)
}

// withSteps returns a copy of a machine with some of its steps.
func (m *machine) withSteps(which []int) *machine {
	part := *m
	part.steps, part.changes = nil, nil
	for _, i := range which {
		part.steps, part.changes = append(part.steps, m.steps[i]), append(part.changes, m.changes[i])
	}
	return &part
}

// addUnrepaired adds to err what could not be mended on machines of the control plane.
func (p *Prepared) addUnrepaired(err error) error {
	var why []string
	for _, m := range p.machines {
		if m.repairError != nil && m.HasRole(config.RoleControlPlane) {
			why = append(why, fmt.Sprintf("%s: %v", m.Address, m.repairError))
		}
	}
	if err == nil || len(why) == 0 {
		return err
	}
	slices.Sort(why)
	return fmt.Errorf("%w\nWhat could not be mended before:\n%s", err, strings.Join(why, "\n"))
}
