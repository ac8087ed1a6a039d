package run

import (
	"context"
	"errors"

	"clusterctl/hcl/config"
)

// aside leaves a machine out of the rest of the run if its connection was lost or it hangs. So one machine of many does
// not stop the others. It returns the error for machines of the control plane, because later stages may need them.
// Nothing is removed or replaced while a machine is left out.
func (p *Prepared) aside(ctx context.Context, m *machine, err error) error {
	if err == nil || interrupted(ctx) || m.Has(config.RoleControlPlane) {
		return err
	}
	m.left = err
	p.failed(ctx, m, err)
	return nil
}

// failed reports that a machine is not as declared.
func (p *Prepared) failed(ctx context.Context, m *machine, err error) {
	if err != nil && !interrupted(ctx) {
		p.engine.say(Event{Kind: EventFailed, Machine: m.Address, Message: err.Error()})
	}
}

// whole reports whether no machine was left out.
func (p *Prepared) whole() bool { return p.leftOut() == nil }

// leftOut returns an error that names the machines that were left out, and why.
func (p *Prepared) leftOut() error {
	var errs []error
	for _, m := range p.machines {
		if m.left != nil {
			errs = append(errs, at(m, m.left))
		}
	}
	return errors.Join(errs...)
}
