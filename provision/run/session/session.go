// Package session holds the machines that a run works on and the connections to them: the agents on the machines and
// the client of the cluster's API.
package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/step"
)

// Session is the machines of a run, with the connections to them.
type Session struct {
	Machines []*Machine
	API      Cluster // nil until the run has connected to the API

	// Dial connects to the agent of a machine.
	Dial func(ctx context.Context, m config.Machine) (Agent, error)
	// Steps returns the steps of a machine by the present state.
	Steps  func(m *Machine) ([]step.Step, error)
	Files  *bundle.Bundle // what is sent to machines
	Report func(report.Event)
	Now    func() time.Time
	// Held returns an error if this run may no longer change machines, because another run has taken over its lock.
	Held        func() error
	Parallelism int    // machines at a time
	Run         string // unique name of this run; empty means that machines do not check it
	Operator    string // who runs this, shown to users of other runs at the same time
}

// Close closes all connections.
func (s *Session) Close() {
	for _, m := range s.Machines {
		if m.Agent != nil {
			_ = m.Agent.Close()
		}
	}
}

// With returns a session with other machines and the same connections.
func (s *Session) With(machines []*Machine) *Session {
	copied := *s
	copied.Machines = machines
	return &copied
}

// ForEach calls do for machines in parallel and returns all errors.
func (s *Session) ForEach(ctx context.Context, list []*Machine, do func(context.Context, *Machine) error) error {
	return s.ForEachLimited(ctx, s.Parallelism, list, do)
}

// ForEachLimited does the same as ForEach, with at most limit machines at a time.
func (s *Session) ForEachLimited(
	ctx context.Context,
	limit int,
	list []*Machine,
	do func(context.Context, *Machine) error,
) error {
	var mu sync.Mutex
	var errs []error
	var g errgroup.Group
	g.SetLimit(min(limit, s.Parallelism))
	for _, m := range list {
		g.Go(func() error {
			err := s.Held()
			if err == nil {
				err = do(ctx, m)
			}
			if err != nil && IsInterrupted(ctx) { // how each machine reports the interruption is not interesting
				return nil
			}
			if err != nil {
				mu.Lock()
				errs = append(errs, m.Wrap(err))
				mu.Unlock()
			}
			return nil
		})
	}
	_ = g.Wait()
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if IsInterrupted(ctx) {
		errs = append(errs, ErrInterrupted)
	}
	return errors.Join(errs...)
}

// WithAction returns the machines that have one of these actions and are not left out.
func (s *Session) WithAction(actions ...string) []*Machine {
	return Filter(s.Machines, func(m *Machine) bool {
		return slices.Contains(actions, m.Action) && m.Action != plan.None && m.LeftOutReason == nil
	})
}

// IsReached reports whether this run is connected to the machine of a name.
func (s *Session) IsReached(name string) bool {
	return slices.ContainsFunc(s.Machines, func(m *Machine) bool { return m.Name == name && m.Agent != nil })
}

// ReportBegin reports that work on a machine begins.
func (s *Session) ReportBegin(m *Machine, what string) {
	s.Report(report.Event{Kind: report.Begin, Machine: m.Address, Message: what})
}

// ReportFailure reports that a machine is not as declared.
func (s *Session) ReportFailure(ctx context.Context, m *Machine, err error) {
	if err != nil && !IsInterrupted(ctx) {
		s.Report(report.Event{Kind: report.Failed, Machine: m.Address, Message: err.Error()})
	}
}

// ErrInterrupted reports that the user has interrupted a run.
var ErrInterrupted = errors.New("interrupted; run it again to go on from there")

// IsInterrupted reports whether a run was cancelled, as opposed to having timed out.
func IsInterrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
