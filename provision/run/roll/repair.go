package roll

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

// RepairAll repairs what does not work, on all machines at once and before anything else: expired or untrusted
// certificates and dead units. Machines that change one after another, each waiting for the others to be healthy, could
// never recover from certificates that have expired everywhere. What cannot be repaired is reported, and is met again
// when the machine changes. Whether the run may continue then depends on the health of the control plane.
func (r *Roller) RepairAll(ctx context.Context) error {
	if r.Situation.IsNewCluster {
		return nil
	}
	var list []*session.Machine
	for _, m := range r.Session.WithAction(plan.Change) {
		if len(r.repairSteps(m)) > 0 {
			list = append(list, m)
		}
	}
	return r.Session.ForEach(ctx, list, r.repairMachine)
}

// repairSteps returns the indices of a machine's steps that repair it.
func (r *Roller) repairSteps(m *session.Machine) []int {
	return plan.RepairSteps(m.Steps, m.Changes, r.Ledger.Machine(m.Address).Issued)
}

func (r *Roller) repairMachine(ctx context.Context, m *session.Machine) error {
	part := m.WithSteps(r.repairSteps(m))
	r.Session.ReportBegin(m, "mending")
	err := r.Session.SendFiles(ctx, part)
	if err == nil {
		err = r.Issuer.Issue(part)
	}
	if err == nil {
		err = r.Session.Apply(ctx, m, part.Steps)
	}
	if err != nil && ctx.Err() == nil {
		m.RepairError = err
		r.Session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "not all of it is mended: " +
			err.Error()})
	}
	if errors.Is(err, agent.ErrUnresponsive) {
		return r.Session.LeaveOut(ctx, m, err)
	}
	if errors.Is(err, agent.ErrLost) {
		return r.Session.LeaveOut(ctx, m, r.Session.ReconnectAndResend(ctx, m, 1))
	}
	return r.Session.LeaveOut(ctx, m, r.Session.Check(ctx, m)) // the repairs decide what is left to do
}

// AddUnrepaired adds to err what could not be mended on machines of the control plane.
func (r *Roller) AddUnrepaired(err error) error {
	var reason []string
	for _, m := range r.Session.Machines {
		if m.RepairError != nil && m.HasRole(config.RoleControlPlane) {
			reason = append(reason, fmt.Sprintf("%s: %v", m.Address, m.RepairError))
		}
	}
	if err == nil || len(reason) == 0 {
		return err
	}
	slices.Sort(reason)
	return fmt.Errorf("%w\nWhat could not be mended before:\n%s", err, strings.Join(reason, "\n"))
}
