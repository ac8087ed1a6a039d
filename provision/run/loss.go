package run

import "slices"

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
		if known, ok := p.State.Machines[m.Address]; ok && p.engine.IsSelected(m.Address) &&
			known.Machine.PreventDestroy != m.PreventDestroy {
			known.Machine.PreventDestroy, changed = m.PreventDestroy, true
			p.State.Machines[m.Address] = known
		}
	}
	objects := slices.Clone(p.State.Objects)
	for i, o := range objects {
		if at := slices.IndexFunc(declared, o.IsSame); at >= 0 && p.engine.IsSelected(o.Address) &&
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
