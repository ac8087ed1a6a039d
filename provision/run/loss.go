package run

import (
	"errors"
	"fmt"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// protected returns an error if the plan would delete something that prevent_destroy protects.
func (p *Prepared) protected() error {
	errs := []error{p.Plan.Protected(p.engine.Config, p.State)}
	going, err := p.going()
	if err != nil {
		return err
	}
	if len(going) == 0 {
		return errors.Join(errs...)
	}
	if p.live == nil { // a destroy does not compare objects, so there is no client yet
		if p.live, err = p.engine.Live(p.State, p.engine.Config); err != nil {
			return err
		}
	}
	declared, err := p.live.References(p.engine.Config)
	if err != nil {
		return err
	}
	said := map[state.Object]bool{} // as the blocks declare it, which may not have been applied yet
	for _, d := range declared {
		said[d.Identity()] = d.Protected
	}
	within := map[string][]state.Object{} // protected objects, by namespace
	for _, o := range p.State.Objects {
		if o.Protected || said[o.Identity()] {
			within[o.Namespace] = append(within[o.Namespace], o)
		}
	}
	for _, o := range going {
		switch {
		case o.Protected:
			errs = append(
				errs,
				fmt.Errorf(
					"%s: %s %s would be deleted, and was applied with prevent_destroy. Apply its block once without",
					o.Address,
					o.Kind,
					o.FullName(),
				),
			)
		case said[o.Identity()]:
			errs = append(
				errs,
				fmt.Errorf(
					"%s: %s %s would be deleted, and its block says prevent_destroy",
					o.Address,
					o.Kind,
					o.FullName(),
				),
			)
		case o.APIVersion == "v1" && o.Kind == "Namespace":
			for _, kept := range within[o.Name] {
				errs = append(
					errs,
					fmt.Errorf(
						"%s: Namespace %s would be deleted, and with it %s %s (%s), which prevent_destroy keeps",
						o.Address,
						o.Name,
						kept.Kind,
						kept.FullName(),
						kept.Address,
					),
				)
			}
		}
	}
	return errors.Join(errs...)
}

// protection updates the state with the declared values of prevent_destroy, even if nothing else changes.
func (p *Prepared) protection() error {
	if p.engine.Destroy || p.engine.Refresh {
		return nil
	}
	declared, err := p.live.References(p.engine.Config)
	if err != nil {
		return err
	}
	changed := false
	for _, m := range p.engine.Config.Machines {
		if known, ok := p.State.Machines[m.Address]; ok && p.engine.selected(m.Address) &&
			known.Machine.PreventDestroy != m.PreventDestroy {
			known.Machine.PreventDestroy, changed = m.PreventDestroy, true
			p.State.Machines[m.Address] = known
		}
	}
	objects := slices.Clone(p.State.Objects)
	for i, o := range objects {
		if at := slices.IndexFunc(declared, o.Same); at >= 0 && p.engine.selected(o.Address) &&
			declared[at].Protected != o.Protected {
			objects[i].Protected, changed = declared[at].Protected, true
		}
	}
	if !changed {
		return nil
	}
	p.State.Objects = objects
	return p.engine.Store.Write(p.State)
}

// mayLose refuses to delete objects whose data would be lost, unless -allow-data-loss names them.
func (p *Prepared) mayLose() error {
	if p.engine.Destroy {
		return nil // losing data is what the command is for
	}
	going, err := p.going()
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range going {
		loss := plan.LossOf(o)
		if loss == "" || slices.Contains(p.ended, o) ||
			slices.ContainsFunc(p.engine.Losses, func(named string) bool { return config.Covers(named, o.Address) }) {
			continue
		}
		errs = append(
			errs,
			fmt.Errorf(
				"%s: %s %s would be deleted, and %s. If that is meant, say so: -allow-data-loss '%s'",
				o.Address,
				o.Kind,
				o.FullName(),
				loss,
				o.Address,
			),
		)
	}
	return errors.Join(errs...)
}

// lossOf returns what data is lost with the object of a plan entry, or "".
func (p *Prepared) lossOf(entry plan.Object) string {
	for _, o := range p.State.Objects {
		if o.Kind == entry.Kind && o.FullName() == entry.Name && o.Address == entry.Address {
			return plan.LossOf(o)
		}
	}
	return ""
}

// going returns the objects that the plan deletes, whether or not they have been compared with the API yet.
func (p *Prepared) going() ([]state.Object, error) {
	if p.engine.Destroy {
		return p.State.Objects, nil
	}
	declared, err := p.live.References(p.engine.Config)
	if err != nil {
		return nil, err
	}
	var list []state.Object
	for _, o := range p.State.Objects {
		stays := slices.ContainsFunc(declared, o.Same)
		if p.engine.selected(o.Address) && !p.engine.left(o.Address) && (!stays || p.engine.replaced(o.Address)) {
			list = append(list, o)
		}
	}
	return list, nil
}
