package roll

import (
	"context"
	"errors"
	"fmt"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// Change changes one machine, and drains it first if the change requires that.
func (r *Roller) Change(ctx context.Context, m *session.Machine) (err error) {
	defer func() { r.Session.ReportFailure(ctx, m, err) }()
	if err := r.recheckWindow(ctx, m); err != nil {
		return err
	}
	node := m.HasRole(config.RoleNode) && !r.Situation.IsNewCluster
	if reason := plan.DrainReason(m.Changes); node && reason != "" && m.Action == plan.Change {
		if err := r.drainIfPossible(ctx, m, reason); err != nil {
			return err
		}
	}
	if node {
		r.deleteFormerNode(ctx, m)
	}
	err = r.converge(ctx, m)
	if err != nil && !errors.As(err, new(*RolledBackError)) {
		return err
	}
	if !r.Ledger.Machine(m.Address).IsCordoned {
		return err
	}
	return errors.Join(err, r.uncordonWhenReady(ctx, m))
}

// converge applies a machine's steps. If the connection is lost, it connects again and walks the same steps again.
// Steps that are already done find nothing to do.
func (r *Roller) converge(ctx context.Context, m *session.Machine) error {
	r.Session.ReportAction(m)
	for attempt := 1; ; attempt++ {
		var err error
		if !m.HasCertificates {
			err = r.Issuer.Issue(m)
		}
		if err == nil {
			err = r.updateMachineRelease(ctx, m, func(steps []step.Step) error {
				return r.Session.Apply(ctx, m, steps)
			})
		}
		if err == nil {
			break
		}
		if !errors.Is(err, agent.ErrLost) || attempt == session.MaxAttempts || ctx.Err() != nil {
			return err
		}
		if r.Situation.MayHaveRebooted(m) {
			if err := r.awaitReboot(ctx, m); err != nil {
				return err
			}
			continue
		}
		r.Session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "the connection was lost, " +
			"connecting " +
			"again"})
		if err := r.Session.ReconnectAndResend(ctx, m, attempt); err != nil {
			return err
		}
	}
	before := r.Ledger.Machine(m.Address).Machine
	if before.HasRole(config.RoleNode) && !m.HasRole(config.RoleNode) && r.Session.API != nil {
		if err := r.Session.API.DeleteNode(ctx, m.Name); err != nil {
			return fmt.Errorf("forget the node that the machine was: %w", err)
		}
	}
	r.Session.Report(report.Event{Kind: report.Done, Machine: m.Address})
	return r.recordJoined(m)
}
