package run

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/session"
)

// Unreached returns why a plan is incomplete, or nil if it is complete.
func (p *Prepared) Unreached() error {
	var errs []error
	for _, m := range p.session.Machines {
		if m.Action == plan.Unreachable {
			errs = append(errs,
				fmt.Errorf("%s (%s:%d): %w", m.Address, m.Source.File, m.Source.Line, m.UnreachedReason))
		}
	}
	if p.Plan.CompareError != "" {
		errs = append(errs, fmt.Errorf("objects could not be compared with the cluster, so the plan is incomplete; "+
			"apply repairs the machines first, and compares then: %s", p.Plan.CompareError))
	}
	if len(p.Refused.List) > 0 {
		errs = append(errs, p.Refused)
	}
	if len(p.Plan.Unreached()) > 0 {
		errs = append(errs, errors.New("so the plan is not whole, and apply would refuse it: bring back what is not "+
			"reached, or leave it out with -exclude, or nodes with -skip-unreachable"))
	}
	return errors.Join(errs...)
}

// skippedError reports that nodes were not reached, and why.
type skippedError struct {
	mu   sync.Mutex
	list []decide.Skipped
}

func (s *skippedError) add(m *session.Machine, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, decide.Skipped{Machine: m, Reason: cause})
}

func (s *skippedError) Error() string {
	return plan.Number(len(s.list), "machine") + " not reached"
}

// addTo adds the skipped machines to a decision.
func (s *skippedError) addTo(d *decide.Decision) {
	slices.SortFunc(s.list, func(a, b decide.Skipped) int { return cmp.Compare(a.Machine.Address, b.Machine.Address) })
	for _, one := range s.list {
		d.Plan.Machines = append(d.Plan.Machines,
			plan.Machine{Address: one.Machine.Address, Action: plan.Skipped, Note: one.Reason.Error()})
	}
	d.SkippedMachines = s.list
}

// Skipped returns an error that names the machines that were left out as unreachable, or nil if there are none.
func (p *Prepared) Skipped() error {
	var errs []error
	for _, one := range p.SkippedMachines {
		errs = append(errs, one.Machine.Wrap(fmt.Errorf("skipped: %w", one.Reason)))
	}
	return errors.Join(errs...)
}
