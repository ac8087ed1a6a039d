package run

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// applyMoves renames things in the state as the moved blocks declare.
func (p *Prepared) applyMoves() error {
	var errs []error
	for _, m := range p.engine.Config.Moved {
		renamed, err := Rename(p.State, m.From, m.To)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", m.Source.File, m.Source.Line, err))
		}
		p.hasRenames = p.hasRenames || renamed > 0
	}
	return errors.Join(errs...)
}

// Rename changes the address from to to for everything in a state, including addresses of instances of from. It returns
// how many it renamed. An address that is not in the state is not an error: it has been renamed already, or never
// existed.
func Rename(s *state.State, from, to string) (n int, err error) {
	renamed := func(address string) (string, bool) {
		if !config.Includes(from, address) && !strings.HasPrefix(address, from+".") {
			return address, false
		}
		n++
		return to + strings.TrimPrefix(address, from), true
	}
	machines := map[string]state.Machine{}
	for _, was := range sortedMachines(s) {
		m := s.Machines[was]
		address, ok := renamed(was)
		if other, taken := s.Machines[address]; ok && taken {
			return 0, fmt.Errorf(
				"%s cannot be called %s: that is another machine, at %s",
				was,
				address,
				other.Machine.IP,
			)
		}
		m.Machine.Address = address
		machines[address] = m
	}
	objects := slices.Clone(s.Objects)
	for i := range objects {
		objects[i].Address, _ = renamed(objects[i].Address)
	}
	s.Machines, s.Objects = machines, objects
	return n, nil
}

// isKeptByRemovedBlock reports whether a removed block says that whatever was applied under an address stays unchanged.
func (e *Engine) isKeptByRemovedBlock(address string) bool {
	return !e.IsDestroy &&
		slices.ContainsFunc(
			e.Config.Removed,
			func(r config.Removed) bool { return !r.Destroy && config.Includes(r.From, address) },
		)
}

// planForgets adds to the plan what the state will forget because of removed blocks that leave things as they are.
func (p *Prepared) planForgets() error {
	var errs []error
	for _, r := range p.engine.Config.Removed {
		if r.Destroy || p.engine.IsDestroy {
			continue
		}
		for _, address := range sortedMachines(p.State) {
			if !config.Includes(r.From, address) || !p.engine.isSelected(address) {
				continue
			}
			if known := p.State.Machines[address].Machine; known.HasRole(config.RoleControlPlane) {
				errs = append(
					errs,
					fmt.Errorf(
						"%s:%d: %s is of the control plane: the others count on it, so that it cannot be left alone. "+
							"Take the removed block out; without its own block the machine leaves in good order",
						r.Source.File,
						r.Source.Line,
						address,
					),
				)
			}
			p.Plan.Machines = append(
				p.Plan.Machines,
				plan.Machine{
					Address: address,
					Action:  plan.Forget,
					Note:    "stays as it is, and is not looked after any more",
				},
			)
		}
		for _, o := range p.State.Objects {
			if config.Includes(r.From, o.Address) && p.engine.isSelected(o.Address) {
				p.Plan.Objects = append(
					p.Plan.Objects,
					plan.Object{
						Address: o.Address,
						Kind:    o.Kind,
						Name:    o.FullName(),
						Action:  plan.Forget,
						Note:    "stays as it is, and is not looked after any more",
					},
				)
			}
		}
	}
	return errors.Join(errs...)
}

// forgetKept removes from the state the machines and objects that removed blocks leave unchanged.
func (p *Prepared) forgetKept() error {
	before := len(p.State.Machines) + len(p.State.Objects)
	for _, address := range sortedMachines(p.State) {
		if p.engine.isKeptByRemovedBlock(address) && p.engine.isSelected(address) {
			delete(p.State.Machines, address)
		}
	}
	p.State.Objects = slices.DeleteFunc(
		slices.Clone(p.State.Objects),
		func(o state.Object) bool {
			return p.engine.isKeptByRemovedBlock(o.Address) && p.engine.isSelected(o.Address)
		},
	)
	if len(p.State.Machines)+len(p.State.Objects) == before {
		return nil
	}
	return p.ledger.Write()
}
