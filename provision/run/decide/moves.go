package decide

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// ApplyMoves renames things in s as the moved blocks declare. It reports whether it renamed any.
func ApplyMoves(c *config.Cluster, s *state.State) (some bool, err error) {
	var errs []error
	for _, m := range c.Moved {
		renamed, err := Rename(s, m.From, m.To)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", m.Source.File, m.Source.Line, err))
		}
		some = some || renamed > 0
	}
	return some, errors.Join(errs...)
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
	for _, before := range SortedMachines(s) {
		m := s.Machines[before]
		address, ok := renamed(before)
		if other, taken := s.Machines[address]; ok && taken {
			return 0, fmt.Errorf("%s cannot be called %s: that is another machine, at %s", before, address,
				other.Machine.IP)
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

// IsKept reports whether a removed block says that whatever was applied under an address stays unchanged.
func (p *Situation) IsKept(address string) bool {
	return !p.Options.IsDestroy &&
		slices.ContainsFunc(p.Config.Removed,
			func(r config.Removed) bool { return !r.Destroy && config.Includes(r.From, address) })
}

// PlanForgets adds to a plan what the state will forget because of removed blocks that leave things as they are.
func (p *Situation) PlanForgets(to *plan.Plan) error {
	var errs []error
	for _, r := range p.Config.Removed {
		if r.Destroy || p.Options.IsDestroy {
			continue
		}
		for _, address := range SortedMachines(p.State) {
			if !config.Includes(r.From, address) || !p.Options.IsSelected(address) {
				continue
			}
			if machine := p.State.Machines[address].Machine; machine.HasRole(config.RoleControlPlane) {
				errs = append(errs, fmt.Errorf("%s:%d: %s is of the control plane: the others count on it, so that it "+
					"cannot be left alone. Take the removed block out; without its own block the machine leaves in "+
					"good order", r.Source.File, r.Source.Line, address))
			}
			to.Machines = append(
				to.Machines,
				plan.Machine{
					Address: address,
					Action:  plan.Forget,
					Note:    "stays as it is, and is not looked after any more",
				},
			)
		}
		for _, o := range p.State.Objects {
			if config.Includes(r.From, o.Address) && p.Options.IsSelected(o.Address) {
				to.Objects = append(
					to.Objects,
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

// ForgetKept removes from s the machines and objects that removed blocks leave unchanged. It reports whether there were
// any.
func (p *Situation) ForgetKept(s *state.State) bool {
	before := len(s.Machines) + len(s.Objects)
	for _, address := range SortedMachines(s) {
		if p.IsKept(address) && p.Options.IsSelected(address) {
			delete(s.Machines, address)
		}
	}
	s.Objects = slices.DeleteFunc(
		slices.Clone(s.Objects),
		func(o state.Object) bool {
			return p.IsKept(o.Address) && p.Options.IsSelected(o.Address)
		},
	)
	return len(s.Machines)+len(s.Objects) < before
}
