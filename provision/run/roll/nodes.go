package roll

import (
	"context"
	"errors"
	"sync/atomic"

	"clusterctl/hcl/config"
	"clusterctl/provision/run/session"
)

// ChangeNodes changes machines that do not belong to an existing control plane. Once one has failed, it changes no more
// of those whose daemons restart.
func (r *Roller) ChangeNodes(ctx context.Context, list []*session.Machine) error {
	together, ahead, rolled := r.Situation.SplitNodes(list)
	if err := r.Issuer.IssueAll(ctx, r.Session, together); err != nil {
		return err
	}
	if err := errors.Join(r.Session.ForEach(ctx, together, r.Change), r.Ledger.Flush()); err != nil {
		return err
	}
	failed := r.Session.ForEach(ctx, ahead, r.Change)
	if failed != nil && (!r.continuesAfterFailure() || session.IsInterrupted(ctx)) {
		return errors.Join(failed, r.Ledger.Flush())
	}
	var stop atomic.Bool
	var left atomic.Int64
	left.Store(int64(len(rolled)))
	err := r.Session.ForEachLimited(ctx, r.Situation.DrainBudget(), rolled,
		func(ctx context.Context, m *session.Machine) error {
			if stop.Load() {
				return nil
			}
			err := r.Change(ctx, m)
			if err != nil && !r.continuesAfterFailure() {
				stop.Store(true)
			}
			if err != nil || left.Add(-1) <= 0 {
				return err
			}
			return r.pause(ctx, m)
		})
	return errors.Join(failed, err, r.Ledger.Flush())
}

// continuesAfterFailure reports whether other nodes are changed after one has failed.
func (r *Roller) continuesAfterFailure() bool {
	return r.Situation.Config.Roll.OnFailure == config.OnFailureContinue
}
