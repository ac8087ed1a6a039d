package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
)

// Prepare connects to every machine and checks everything, without changing anything. It returns an error that names
// all machines that cannot become as declared. With SkipsUnreachable, nodes that are not reached are left out as if
// they were excluded, and Skipped names them.
func (e *Engine) Prepare(ctx context.Context) (*Prepared, error) {
	own := *e
	own.Excludes = slices.Clone(e.Excludes)
	var all skippedError
	for {
		p, err := own.prepare(ctx)
		var more *skippedError
		if !errors.As(err, &more) {
			if p != nil {
				all.addTo(p)
			}
			return p, err
		}
		for _, m := range more.list {
			own.Excludes = append(own.Excludes, m.machine.Address)
		}
		all.list = append(all.list, more.list...)
	}
}

// canSkip reports whether a machine that is not reached is left out. Machines of the control plane are not, because
// later stages may need them.
func (e *Engine) canSkip(m *session.Machine) bool {
	return e.SkipsUnreachable && m.Action != plan.Remove && !m.HasRole(config.RoleControlPlane)
}

// skippedError reports that nodes were not reached, and why.
type skippedError struct {
	mu   sync.Mutex
	list []skipped
}

type skipped struct {
	machine *session.Machine
	reason  error
}

func (s *skippedError) add(m *session.Machine, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, skipped{m, why})
}

func (s *skippedError) Error() string {
	return plan.Number(len(s.list), "machine") + " not reached"
}

// addTo adds the skipped machines to a plan.
func (s *skippedError) addTo(p *Prepared) {
	slices.SortFunc(s.list, func(a, b skipped) int { return cmp.Compare(a.machine.Address, b.machine.Address) })
	for _, one := range s.list {
		p.Plan.Machines = append(
			p.Plan.Machines,
			plan.Machine{Address: one.machine.Address, Action: plan.Skipped, Note: one.reason.Error()},
		)
	}
	p.skipped = s.list
}

// Skipped returns an error that names the machines that were left out as unreachable, or nil if there are none.
func (p *Prepared) Skipped() error {
	var errs []error
	for _, one := range p.skipped {
		errs = append(errs, one.machine.Wrap(fmt.Errorf("skipped: %w", one.reason)))
	}
	return errors.Join(errs...)
}
