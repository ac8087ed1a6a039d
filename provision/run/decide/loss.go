package decide

import (
	"errors"
	"fmt"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// CheckProtected returns an error if objects would be deleted that prevent_destroy protects. going are the objects that
// the plan deletes, declared those that the configuration declares.
func (p *Situation) CheckProtected(going, declared []state.Object) error {
	var errs []error
	isProtected := map[state.Object]bool{} // as the blocks declare it, which may not have been applied yet
	for _, d := range declared {
		isProtected[d.Identity()] = d.IsProtected
	}
	within := map[string][]state.Object{} // protected objects, by namespace
	for _, o := range p.State.Objects {
		if o.IsProtected || isProtected[o.Identity()] {
			within[o.Namespace] = append(within[o.Namespace], o)
		}
	}
	for _, o := range going {
		switch {
		case o.IsProtected:
			errs = append(errs, fmt.Errorf("%s: %s %s would be deleted, and was applied with prevent_destroy. "+
				"Apply its block once without", o.Address, o.Kind, o.FullName()))
		case isProtected[o.Identity()]:
			errs = append(errs, fmt.Errorf("%s: %s %s would be deleted, and its block says prevent_destroy", o.Address,
				o.Kind, o.FullName()))
		case o.APIVersion == "v1" && o.Kind == "Namespace":
			for _, kept := range within[o.Name] {
				errs = append(errs, fmt.Errorf(
					"%s: Namespace %s would be deleted, and with it %s %s (%s), which prevent_destroy keeps", o.Address,
					o.Name, kept.Kind, kept.FullName(), kept.Address))
			}
		}
	}
	return errors.Join(errs...)
}

// CheckDataLoss refuses to delete objects whose data would be lost, unless -allow-data-loss names them. going are the
// objects that the plan deletes, vanished those that no longer exist.
func (p *Situation) CheckDataLoss(going, vanished []state.Object) error {
	if p.Options.IsDestroy {
		return nil // losing data is what the command is for
	}
	var errs []error
	for _, o := range going {
		loss := plan.LossOf(o)
		if loss == "" || slices.Contains(vanished, o) ||
			slices.ContainsFunc(p.Options.AllowedLosses,
				func(named string) bool { return config.Includes(named, o.Address) }) {
			continue
		}
		errs = append(errs, fmt.Errorf(
			"%s: %s %s would be deleted, and %s. If that is meant, say so: -allow-data-loss '%s'", o.Address, o.Kind,
			o.FullName(), loss, o.Address))
	}
	return errors.Join(errs...)
}

// LossOf returns what data is lost with the object of a plan entry, or "".
func (p *Situation) LossOf(entry plan.Object) string {
	for _, o := range p.State.Objects {
		if o.Kind == entry.Kind && o.FullName() == entry.Name && o.Address == entry.Address {
			return plan.LossOf(o)
		}
	}
	return ""
}

// ObjectsToDelete returns the objects that the plan deletes, whether or not they have been compared with the API yet.
func (p *Situation) ObjectsToDelete(declared []state.Object) (list []state.Object) {
	if p.Options.IsDestroy {
		return p.State.Objects
	}
	for _, o := range p.State.Objects {
		stays := slices.ContainsFunc(declared, o.IsSame)
		if p.Options.IsSelected(o.Address) && !p.IsKept(o.Address) &&
			(!stays || p.Options.IsReplaced(o.Address)) {
			list = append(list, o)
		}
	}
	return list
}
