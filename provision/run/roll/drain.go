package roll

import (
	"context"
	"fmt"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// drainIfPossible drains a node if there is another ready node for its pods.
func (r *Roller) drainIfPossible(ctx context.Context, m *session.Machine, reason string) error {
	ready, err := r.Session.API.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	switch current, ok := ready[m.Name]; {
	case !ok:
		return nil
	case current == "Unknown": // no kubelet can end its pods, and they are unsupervised until the machine is repaired
		r.Session.Report(
			report.Event{
				Kind:    report.Note,
				Machine: m.Address,
				Message: "not drained, but mended first: nothing has been heard of its kubelet",
			},
		)
		return nil
	}
	if !plan.HasOtherReady(m.Name, ready) {
		r.Session.Report(
			report.Event{Kind: report.Note, Machine: m.Address, Message: "not drained: there is no other node that " +
				"is ready"},
		)
		return nil
	}
	if err := plan.CheckDrain(plan.Budget(r.Situation.Config.Roll.MaxUnavailable, len(ready)), ready,
		r.changingNames()); err != nil {
		return fmt.Errorf("not drained (%s): %w", reason, err)
	}
	return r.Drain(ctx, m)
}

// changingNames returns the names of the machines that this run changes or removes. CheckDrain expects those to be
// unavailable.
func (r *Roller) changingNames() (names []string) {
	for _, m := range r.Session.WithAction(plan.Create, plan.Change, plan.Remove) {
		names = append(names, m.Name)
	}
	return names
}

const drainTimeout = 5 * time.Minute

// Drain cordons a node and evicts its pods. The state records the cordon first, so that a later run uncordons the
// node if this one is interrupted.
func (r *Roller) Drain(ctx context.Context, m *session.Machine) error {
	r.Session.ReportBegin(m, "draining")
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := r.recordCordon(ctx, m); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	err := r.Session.API.Drain(ctx, m.Name, func(what string) {
		r.Session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "draining: " + what})
	})
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}

// recordCordon records that this run cordons a node. It records nothing if the node is already cordoned, because a user
// who cordoned it by hand wants it to stay so.
func (r *Roller) recordCordon(ctx context.Context, m *session.Machine) error {
	cordoned, err := r.Session.API.IsCordoned(ctx, m.Name)
	if err != nil || cordoned {
		return err
	}
	return r.Ledger.ChangeMachine(m.Address, func(s *state.Machine) { s.IsCordoned = true })
}

// KeepPodsOff keeps new pods off the nodes that this run removes. It deletes the Nodes of dead machines at once,
// so that their pods are recreated elsewhere and no disruption budget waits for them. It cordons the living ones. What
// fails here is done when the machine is removed.
func (r *Roller) KeepPodsOff(ctx context.Context, removed []*session.Machine) error {
	for _, m := range removed {
		if !m.HasRole(config.RoleNode) || r.Situation.IsNewCluster {
			continue
		}
		var err error
		if m.UnreachedReason != nil {
			err = r.Session.API.DeleteNode(ctx, m.Name)
		} else if m.HasKubelet() {
			if err = r.recordCordon(ctx, m); err == nil {
				err = r.Session.API.Cordon(ctx, m.Name)
			}
		}
		if err != nil && session.IsInterrupted(ctx) {
			return session.ErrInterrupted
		}
		if err != nil { // the API does not answer, and would not for the other nodes
			r.Session.Report(
				report.Event{
					Kind:    report.Note,
					Machine: m.Address,
					Message: "pods of nodes that go are seen to later: " + err.Error(),
				},
			)
			return nil
		}
	}
	return nil
}
