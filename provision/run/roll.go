package run

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// changeNodes changes machines that do not belong to an existing control plane. Once one has failed, it changes no more
// of those whose daemons restart.
func (p *Prepared) changeNodes(ctx context.Context, list []*session.Machine) error {
	together, ahead, rolled := p.situation.SplitNodes(list)
	if err := p.issuer.IssueAll(ctx, p.session, together); err != nil {
		return err
	}
	if err := errors.Join(p.session.ForEach(ctx, together, p.rollMachine), p.ledger.Flush()); err != nil {
		return err
	}
	failed := p.session.ForEach(ctx, ahead, p.rollMachine)
	if failed != nil && (!p.continuesAfterFailure() || session.IsInterrupted(ctx)) {
		return errors.Join(failed, p.ledger.Flush())
	}
	var stop atomic.Bool
	var left atomic.Int64
	left.Store(int64(len(rolled)))
	err := p.session.ForEachLimited(ctx, p.situation.DrainBudget(), rolled, func(ctx context.Context, m *session.Machine) error {
		if stop.Load() {
			return nil
		}
		err := p.rollMachine(ctx, m)
		if err != nil && !p.continuesAfterFailure() {
			stop.Store(true)
		}
		if err != nil || left.Add(-1) <= 0 {
			return err
		}
		return p.pause(ctx, m)
	})
	return errors.Join(failed, err, p.ledger.Flush())
}

// continuesAfterFailure reports whether other nodes are changed after one has failed.
func (p *Prepared) continuesAfterFailure() bool {
	return p.engine.Config.Roll.OnFailure == config.OnFailureContinue
}

// rollMachine changes one machine, and drains it first if the change requires that.
func (p *Prepared) rollMachine(ctx context.Context, m *session.Machine) (err error) {
	defer func() { p.session.ReportFailure(ctx, m, err) }()
	if err := p.recheckWindow(ctx, m); err != nil {
		return err
	}
	node := m.HasRole(config.RoleNode) && !p.situation.IsNewCluster
	if why := plan.DrainReason(m.Changes); node && why != "" && m.Action == plan.Change {
		if err := p.drainIfPossible(ctx, m, why); err != nil {
			return err
		}
	}
	if node {
		p.deleteFormerNode(ctx, m)
	}
	err = p.converge(ctx, m)
	if err != nil && !errors.As(err, new(*RolledBackError)) {
		return err
	}
	if !p.ledger.Machine(m.Address).IsCordoned {
		return err
	}
	return errors.Join(err, p.uncordonWhenReady(ctx, m))
}

const deleteTimeout = 10 * time.Second

// deleteFormerNode deletes a Node that belongs to a former machine with the same name, for example before a
// reinstallation. The kubelet would otherwise reuse that Node with its provider ID, and its pods would no longer exist.
// A ready Node is kept until it is drained, unless nothing of the cluster is on the machine. An unreachable API does
// not stop the machine's change, because this run may repair the API.
func (p *Prepared) deleteFormerNode(ctx context.Context, m *session.Machine) {
	now := p.engine.Config.Inventory[m.Name]
	if now.ProviderID == "" || m.Action != plan.Change && !p.engine.IsReplaced(m.Address) {
		return // no former machine had the name
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	if !m.HasNoCluster() {
		if ready, err := p.session.API.Nodes(ctx); err != nil || ready[m.Name] == "True" {
			return
		}
	}
	switch forgot, err := p.session.API.DeleteFormerNode(ctx, m.Name, now); {
	case err != nil:
		p.session.Report(
			report.Event{
				Kind:    report.Note,
				Machine: m.Address,
				Message: "whether its Node is of a machine that had its name before is not known: " + err.Error(),
			},
		)
	case forgot:
		p.session.Report(
			report.Event{
				Kind:    report.Note,
				Machine: m.Address,
				Message: "the Node of the machine that had its name before is deleted, and with it the pods that " +
					"were there",
			},
		)
	}
}

// drainIfPossible drains a node if there is another ready node for its pods.
func (p *Prepared) drainIfPossible(ctx context.Context, m *session.Machine, why string) error {
	ready, err := p.session.API.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	switch is, there := ready[m.Name]; {
	case !there:
		return nil
	case is == "Unknown": // no kubelet can end its pods, and they are unsupervised until the machine is repaired
		p.session.Report(
			report.Event{
				Kind:    report.Note,
				Machine: m.Address,
				Message: "not drained, but mended first: nothing has been heard of its kubelet",
			},
		)
		return nil
	}
	if !plan.HasOtherReady(m.Name, ready) {
		p.session.Report(
			report.Event{Kind: report.Note, Machine: m.Address, Message: "not drained: there is no other node that is ready"},
		)
		return nil
	}
	if err := plan.CheckDrain(plan.Budget(p.engine.Config.Roll.MaxUnavailable, len(ready)), ready,
		p.changingNames()); err != nil {
		return fmt.Errorf("not drained (%s): %w", why, err)
	}
	return p.drainNode(ctx, m)
}

// changingNames returns the names of the machines that this run changes or removes. CheckDrain expects those to be
// unavailable.
func (p *Prepared) changingNames() (names []string) {
	for _, m := range p.session.WithAction(plan.Create, plan.Change, plan.Remove) {
		names = append(names, m.Name)
	}
	return names
}

const drainTimeout = 5 * time.Minute

// drainNode cordons a node and evicts its pods. The state records the cordon first, so that a later run uncordons the
// node if this one is interrupted.
func (p *Prepared) drainNode(ctx context.Context, m *session.Machine) error {
	p.session.ReportBegin(m, "draining")
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := p.recordCordon(ctx, m); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	err := p.session.API.Drain(ctx, m.Name, func(what string) {
		p.session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "draining: " + what})
	})
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}

// recordCordon records that this run cordons a node. It records nothing if the node is already cordoned, because a user
// who cordoned it by hand wants it to stay so.
func (p *Prepared) recordCordon(ctx context.Context, m *session.Machine) error {
	cordoned, err := p.session.API.IsCordoned(ctx, m.Name)
	if err != nil || cordoned {
		return err
	}
	return p.ledger.ChangeMachine(m.Address, func(s *state.Machine) { s.IsCordoned = true })
}

// keepPodsOffRemoved keeps new pods off the nodes that this run removes. It deletes the Nodes of dead machines at once,
// so that their pods are recreated elsewhere and no disruption budget waits for them. It cordons the living ones. What
// fails here is done when the machine is removed.
func (p *Prepared) keepPodsOffRemoved(ctx context.Context, removed []*session.Machine) error {
	for _, m := range removed {
		if !m.HasRole(config.RoleNode) || p.situation.IsNewCluster {
			continue
		}
		var err error
		if m.UnreachedReason != nil {
			err = p.session.API.DeleteNode(ctx, m.Name)
		} else if m.HasKubelet() {
			if err = p.recordCordon(ctx, m); err == nil {
				err = p.session.API.Cordon(ctx, m.Name)
			}
		}
		if err != nil && session.IsInterrupted(ctx) {
			return session.ErrInterrupted
		}
		if err != nil { // the API does not answer, and would not for the other nodes
			p.session.Report(
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

const readyTimeout = 2 * time.Minute

// uncordonWhenReady uncordons a node once it is ready.
func (p *Prepared) uncordonWhenReady(ctx context.Context, m *session.Machine) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		ready, err := p.session.API.Nodes(ctx)
		is, there := ready[m.Name]
		if err == nil && (is == "True" || !there) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf(
				"it is not ready %s after its change, and takes no pods meanwhile: see journalctl -u kubelet there, "+
					"then apply again",
				readyTimeout,
			)
		case <-tick.C:
		}
	}
	if err := p.session.API.Uncordon(ctx, m.Name); err != nil {
		return fmt.Errorf("let it take pods again: %w", err)
	}
	p.session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "takes pods again"})
	return p.ledger.ChangeMachine(m.Address, func(s *state.Machine) { s.IsCordoned = false })
}
