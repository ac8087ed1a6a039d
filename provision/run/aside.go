package run

import (
	"context"
	"errors"

	"clusterctl/hcl/config"
)

// aside leaves a machine out of the rest of a run when it was lost: one of a thousand keeps the others from nothing. A
// machine of the control plane is left out of nothing, since what comes after may need it. Nothing is removed or
// replaced while one is left out.
func (p *Prepared) aside(ctx context.Context, m *machine, err error) error {
	if err == nil || interrupted(ctx) || m.Has(config.RoleControlPlane) {
		return err
	}
	m.left = err
	p.failed(ctx, m, err)
	return nil
}

// failed says that a machine is not as declared.
func (p *Prepared) failed(ctx context.Context, m *machine, err error) {
	if err != nil && !interrupted(ctx) {
		p.engine.say(Event{Kind: EventFailed, Machine: m.Address, Message: err.Error()})
	}
}

// whole reports whether no machine was left out.
func (p *Prepared) whole() bool { return p.leftOut() == nil }

// leftOut says which machines were, and why.
func (p *Prepared) leftOut() error {
	var errs []error
	for _, m := range p.machines {
		if m.left != nil {
			errs = append(errs, at(m, m.left))
		}
	}
	return errors.Join(errs...)
}
