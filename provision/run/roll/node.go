package roll

import (
	"context"
	"fmt"
	"time"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

const deleteTimeout = 10 * time.Second

// deleteFormerNode deletes a Node that belongs to a former machine with the same name, for example before a
// reinstallation. The kubelet would otherwise reuse that Node with its provider ID, and its pods would no longer exist.
// A ready Node is kept until it is drained, unless nothing of the cluster is on the machine. An unreachable API does
// not stop the machine's change, because this run may repair the API.
func (r *Roller) deleteFormerNode(ctx context.Context, m *session.Machine) {
	now := r.Situation.Config.Inventory[m.Name]
	if now.ProviderID == "" || m.Action != plan.Change && !r.Situation.Options.IsReplaced(m.Address) {
		return // no former machine had the name
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	if !m.HasNoCluster() {
		if ready, err := r.Session.API.Nodes(ctx); err != nil || ready[m.Name] == "True" {
			return
		}
	}
	switch forgot, err := r.Session.API.DeleteFormerNode(ctx, m.Name, now); {
	case err != nil:
		r.Session.Report(
			report.Event{
				Kind:    report.Note,
				Machine: m.Address,
				Message: "whether its Node is of a machine that had its name before is not known: " + err.Error(),
			},
		)
	case forgot:
		r.Session.Report(
			report.Event{
				Kind:    report.Note,
				Machine: m.Address,
				Message: "the Node of the machine that had its name before is deleted, and with it the pods that " +
					"were there",
			},
		)
	}
}

const readyTimeout = 2 * time.Minute

// uncordonWhenReady uncordons a node once it is ready.
func (r *Roller) uncordonWhenReady(ctx context.Context, m *session.Machine) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		ready, err := r.Session.API.Nodes(ctx)
		current, ok := ready[m.Name]
		if err == nil && (current == "True" || !ok) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not ready %s after its change, and takes no pods meanwhile: see journalctl -u "+
				"kubelet there, then apply again", readyTimeout)
		case <-tick.C:
		}
	}
	if err := r.Session.API.Uncordon(ctx, m.Name); err != nil {
		return fmt.Errorf("let it take pods again: %w", err)
	}
	r.Session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "takes pods again"})
	return r.Ledger.ChangeMachine(m.Address, func(s *state.Machine) { s.IsCordoned = false })
}
