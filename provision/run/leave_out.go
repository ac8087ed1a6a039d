package run

import (
	"context"
	"errors"

	"clusterctl/hcl/config"
)

// leaveOut leaves a machine out of the rest of the run if its connection was lost or it hangs. So one machine of many
// does not stop the others. It returns the error for machines of the control plane, because later stages may need them.
// Nothing is removed or replaced while a machine is left out.
func (p *Prepared) leaveOut(ctx context.Context, m *machine, err error) error {
	if err == nil || isInterrupted(ctx) || m.HasRole(config.RoleControlPlane) {
		return err
	}
	m.leftOutReason = err
	p.reportFailure(ctx, m, err)
	return nil
}

// reportFailure reports that a machine is not as declared.
func (p *Prepared) reportFailure(ctx context.Context, m *machine, err error) {
	if err != nil && !isInterrupted(ctx) {
		p.engine.report(Event{Kind: EventFailed, Machine: m.Address, Message: err.Error()})
	}
}

// hasAllMachines reports whether no machine was left out.
func (p *Prepared) hasAllMachines() bool { return p.leftOutError() == nil }

// leftOutError returns an error that names the machines that were left out, and why.
func (p *Prepared) leftOutError() error {
	var errs []error
	for _, m := range p.machines {
		if m.leftOutReason != nil {
			errs = append(errs, machineError(m, m.leftOutReason))
		}
	}
	return errors.Join(errs...)
}
