package run

import (
	"context"
	"errors"
	"slices"

	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Apply carries out the plan. It writes the state as soon as any part of it becomes true, so that an interrupted run
// can be repeated. If machines were skipped, Apply returns an error that names them after all other work is done.
func (p *Prepared) Apply(ctx context.Context) error {
	err := p.apply(ctx)
	if errors.Is(err, session.ErrInterrupted) {
		return err
	}
	return errors.Join(err, p.Skipped())
}

func (p *Prepared) apply(ctx context.Context) error {
	if err := p.ledger.SaveVersion(); err != nil {
		return err
	}
	if err := p.updateProtection(); err != nil {
		return err
	}
	if p.Plan.IsEmpty() && !p.Plan.IsPending {
		return p.recordUnchanged()
	}
	p.ledger.Record(func(s *state.State) { s.Keys.Secrets = p.Secrets }) // written with the first change of the state
	err := p.applyPlan(ctx)
	if err == nil && !p.engine.IsDestroy {
		err = errors.Join(p.clearRestore(), p.recordSecrets(p.engine.Config.Secrets))
	}
	if err != nil && session.IsInterrupted(ctx) && !errors.Is(err, session.ErrInterrupted) {
		return session.ErrInterrupted
	}
	return err
}

// applyPlan carries out a plan that has changes.
func (p *Prepared) applyPlan(ctx context.Context) error {
	c := p.newChange()
	switch {
	case p.engine.IsRefreshOnly:
		return p.removeMissing()
	case p.engine.IsDestroy:
		return c.leaver.Destroy(ctx)
	}
	going, err := p.objectsToDelete()
	if err != nil {
		return err
	}
	if err := p.situation.CheckDataLoss(going, p.VanishedObjects); err != nil {
		return err
	}
	return errors.Join(c.run(ctx), p.session.LeftOutError())
}

// recordUnchanged writes what a plan without changes has found out: objects that no longer exist, renamed blocks, and a
// finished restore.
func (p *Prepared) recordUnchanged() error {
	renewals := len(p.State.Renewals)
	p.ledger.Record(func(s *state.State) {
		dropCompletedRenewals(p.situation, s)
		s.Objects = slices.DeleteFunc(s.Objects,
			func(o state.Object) bool { return slices.Contains(p.VanishedObjects, o) })
	})
	if len(p.VanishedObjects) > 0 || p.HasRenames || len(p.State.Renewals) < renewals {
		if err := p.ledger.Write(); err != nil {
			return err
		}
	}
	if !p.engine.IsDestroy {
		if err := p.clearRestore(); err != nil {
			return err
		}
	}
	return p.recordSecrets(p.engine.Config.Secrets)
}
