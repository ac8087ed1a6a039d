package session

import (
	"context"
	"errors"

	"clusterctl/hcl/config"
)

// LeaveOut leaves a machine out of the rest of the run if its connection was lost or it hangs. So one machine of many
// does not stop the others. It returns the error for machines of the control plane, because later phases may need them.
// Nothing is removed or replaced while a machine is left out.
func (s *Session) LeaveOut(ctx context.Context, m *Machine, err error) error {
	if err == nil || IsInterrupted(ctx) || m.HasRole(config.RoleControlPlane) {
		return err
	}
	m.LeftOutReason = err
	s.ReportFailure(ctx, m, err)
	return nil
}

// HasAll reports whether no machine was left out.
func (s *Session) HasAll() bool { return s.LeftOutError() == nil }

// LeftOutError returns an error that names the machines that were left out, and why.
func (s *Session) LeftOutError() error {
	var errs []error
	for _, m := range s.Machines {
		if m.LeftOutReason != nil {
			errs = append(errs, m.Wrap(m.LeftOutReason))
		}
	}
	return errors.Join(errs...)
}
