package run

import (
	"slices"

	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

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
	p.ledger.Record(func(s *state.State) {
		for _, m := range p.engine.Config.Machines {
			if recorded, ok := s.Machines[m.Address]; ok && p.engine.IsSelected(m.Address) &&
				recorded.Machine.PreventDestroy != m.PreventDestroy {
				recorded.Machine.PreventDestroy, changed = m.PreventDestroy, true
				s.Machines[m.Address] = recorded
			}
		}
		for i, o := range s.Objects {
			if at := slices.IndexFunc(declared, o.IsSame); at >= 0 && p.engine.IsSelected(o.Address) &&
				declared[at].IsProtected != o.IsProtected {
				s.Objects[i].IsProtected, changed = declared[at].IsProtected, true
			}
		}
	})
	if !changed {
		return nil
	}
	return p.ledger.Write()
}

// recordSecrets records which sensitive values the applied configuration contains. It is called once none of the former
// values can be in use. A run with a part of the configuration keeps the values of the rest.
func (p *Prepared) recordSecrets(secrets []string) error {
	if len(p.engine.Targets) > 0 || len(p.engine.Excludes) > 0 {
		secrets = p.Secrets
	}
	secrets = union(secrets, nil)
	if p.State.Serial == 0 || slices.Equal(secrets, p.State.Keys.Secrets) {
		return nil
	}
	return p.ledger.Change(func(s *state.State) { s.Keys.Secrets = secrets })
}

// clearRestore removes the restore from the state once all machines are as declared after it.
func (p *Prepared) clearRestore() error {
	if p.State.Restore == nil || p.Plan.IsPartial {
		return nil
	}
	return p.ledger.Change(func(s *state.State) { s.Restore = nil })
}

// removeMissing writes the state without what refresh has found to be gone.
func (p *Prepared) removeMissing() error {
	return p.ledger.Change(func(s *state.State) {
		for _, m := range p.session.WithAction(plan.Remove) {
			delete(s.Machines, m.Address)
			delete(s.Etcd, m.Name)
		}
		s.Objects = slices.DeleteFunc(s.Objects, func(o state.Object) bool {
			return slices.ContainsFunc(p.Plan.Objects, func(g plan.Object) bool {
				return g.Address == o.Address && g.Kind == o.Kind && g.Name == o.FullName()
			})
		})
	})
}
