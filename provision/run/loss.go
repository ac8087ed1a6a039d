package run

import (
	"errors"
	"fmt"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// checkProtected returns an error if the plan would delete something that prevent_destroy protects.
func (p *Prepared) checkProtected() error {
	errs := []error{p.Plan.CheckProtected(p.engine.Config, p.State)}
	going, err := p.objectsToDelete()
	if err != nil {
		return err
	}
	if len(going) == 0 {
		return errors.Join(errs...)
	}
	if p.session.API == nil { // a destroy does not compare objects, so there is no client yet
		if p.session.API, err = p.engine.ConnectCluster(p.State, p.engine.Config); err != nil {
			return err
		}
	}
	declared, err := p.session.API.References(p.engine.Config)
	if err != nil {
		return err
	}
	said := map[state.Object]bool{} // as the blocks declare it, which may not have been applied yet
	for _, d := range declared {
		said[d.Identity()] = d.IsProtected
	}
	within := map[string][]state.Object{} // protected objects, by namespace
	for _, o := range p.State.Objects {
		if o.IsProtected || said[o.Identity()] {
			within[o.Namespace] = append(within[o.Namespace], o)
		}
	}
	for _, o := range going {
		switch {
		case o.IsProtected:
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

// updateProtection updates the state with the declared values of prevent_destroy, even if nothing else changes.
func (p *Prepared) updateProtection() error {
	if p.engine.IsDestroy || p.engine.IsRefreshOnly {
		return nil
	}
	declared, err := p.session.API.References(p.engine.Config)
	if err != nil {
		return err
	}
	changed := false
	for _, m := range p.engine.Config.Machines {
		if known, ok := p.State.Machines[m.Address]; ok && p.engine.isSelected(m.Address) &&
			known.Machine.PreventDestroy != m.PreventDestroy {
			known.Machine.PreventDestroy, changed = m.PreventDestroy, true
			p.State.Machines[m.Address] = known
		}
	}
	objects := slices.Clone(p.State.Objects)
	for i, o := range objects {
		if at := slices.IndexFunc(declared, o.IsSame); at >= 0 && p.engine.isSelected(o.Address) &&
			declared[at].IsProtected != o.IsProtected {
			objects[i].IsProtected, changed = declared[at].IsProtected, true
		}
	}
	if !changed {
		return nil
	}
	p.State.Objects = objects
	return p.ledger.Write()
}

// checkDataLoss refuses to delete objects whose data would be lost, unless -allow-data-loss names them.
func (p *Prepared) checkDataLoss() error {
	if p.engine.IsDestroy {
		return nil // losing data is what the command is for
	}
	going, err := p.objectsToDelete()
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range going {
		loss := plan.LossOf(o)
		if loss == "" || slices.Contains(p.vanishedObjects, o) ||
			slices.ContainsFunc(p.engine.AllowedLosses,
				func(named string) bool { return config.Includes(named, o.Address) }) {
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

// objectsToDelete returns the objects that the plan deletes, whether or not they have been compared with the API yet.
func (p *Prepared) objectsToDelete() ([]state.Object, error) {
	if p.engine.IsDestroy {
		return p.State.Objects, nil
	}
	declared, err := p.session.API.References(p.engine.Config)
	if err != nil {
		return nil, err
	}
	var list []state.Object
	for _, o := range p.State.Objects {
		stays := slices.ContainsFunc(declared, o.IsSame)
		if p.engine.isSelected(o.Address) && !p.engine.isKeptByRemovedBlock(o.Address) &&
			(!stays || p.engine.isReplaced(o.Address)) {
			list = append(list, o)
		}
	}
	return list, nil
}
