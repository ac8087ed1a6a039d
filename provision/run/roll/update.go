package roll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// RolledBackError reports that a release did not work on a machine and was rolled back.
type RolledBackError struct {
	To, From string
	Reason   error
}

func (e *RolledBackError) Error() string {
	return fmt.Sprintf("%s does not work here, and was rolled back: %s runs again. %v", e.To, e.From, e.Reason)
}

func (e *RolledBackError) Unwrap() error { return e.Reason }

// updateMachineRelease applies a machine's steps up to the step that deletes the former release, and checks from
// outside that the machine is healthy. Then it applies the rest. If that fails, the machine returns to the former
// release by itself.
func (r *Roller) updateMachineRelease(ctx context.Context, m *session.Machine, apply func([]step.Step) error) error {
	end := slices.IndexFunc(m.Steps, func(s step.Step) bool { _, ok := s.(*step.Sweep); return ok })
	if !decide.HasUpdate(m) || end < 0 {
		return apply(m.Steps)
	}
	err := apply(m.Steps[:end])
	if err == nil {
		err = r.awaitHealthyMachine(ctx, m)
	}
	if err == nil {
		return apply(m.Steps[end:])
	}
	if errors.Is(err, agent.ErrLost) || ctx.Err() != nil || session.IsInterrupted(ctx) {
		return err // the run continues on the machine where it was
	}
	return r.rollBack(ctx, m, err)
}

// awaitHealthyMachine waits until a machine's etcd member, API server and node are healthy, as seen from outside.
func (r *Roller) awaitHealthyMachine(ctx context.Context, m *session.Machine) error {
	if m.HasRole(config.RoleControlPlane) && r.Ledger.Machine(m.Address).HasJoined {
		if err := r.Guard.AwaitRecovery(ctx, m); err != nil {
			return err
		}
	}
	if !m.HasRole(config.RoleNode) {
		return nil
	}
	limit := cmp.Or(r.Situation.Config.Roll.Timeout, readyTimeout)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	want := r.Situation.Release.Kubernetes
	for {
		ready, kubelet, err := r.Session.API.Node(ctx, m.Name)
		switch {
		case err != nil:
			err = fmt.Errorf("its node cannot be asked for: %w", err)
		case kubelet == "": // the machine has never had a Node
			return nil
		case ready != "True":
			err = fmt.Errorf("its node is not ready (%s)", ready)
		case kubelet != want:
			err = fmt.Errorf("its node has Kubernetes %s, not %s", kubelet, want)
		default:
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s after its programs changed %w", limit, err)
		}
	}
}

const rollBackTimeout = 6 * time.Minute

// rollBack returns a machine to the former release, and records why.
func (r *Roller) rollBack(ctx context.Context, m *session.Machine, cause error) error {
	to := r.Situation.Release
	var from host.Release
	if m.Facts.Release != nil {
		from = *m.Facts.Release
	}
	e := &RolledBackError{Reason: cause}
	e.From, e.To = plan.ReleaseNames(from, to)
	r.Session.Report(
		report.Event{
			Kind:    report.Note,
			Machine: m.Address,
			Message: fmt.Sprintf("%s does not work here, going back to %s: %v", e.To, e.From, cause),
		},
	)
	ctx, cancel := context.WithTimeout(ctx, rollBackTimeout)
	defer cancel()
	err := r.Session.Apply(ctx, m, role.RollBack(m.Steps))
	if err == nil && m.HasRole(config.RoleControlPlane) && r.Ledger.Machine(m.Address).HasJoined {
		err = r.Guard.AwaitRecovery(ctx, m)
	}
	failed := &state.FailedUpdate{To: to, At: r.Session.Now(), Reason: config.Mask(cause.Error(), r.Secrets)}
	if writeErr := r.Ledger.ChangeMachine(m.Address, func(s *state.Machine) { s.Failed = failed }); writeErr != nil {
		return errors.Join(e, writeErr)
	}
	if err != nil {
		return fmt.Errorf("%s does not work here: %w\nand going back to %s failed as well, so that the machine needs "+
			"you (docs/operations/update-does-not-start.md): %w", e.To, cause, e.From, err)
	}
	return e
}
