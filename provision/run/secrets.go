package run

import "slices"

// union has every text of both once, sorted.
func union(a, b []string) []string {
	list := append(slices.Clone(a), b...)
	slices.Sort(list)
	return slices.Compact(list)
}

// remember keeps which sensitive values are in what is applied, once none of the former ones can be. A part
// of the configuration alone leaves those of the rest.
func (p *Prepared) remember(secrets []string) error {
	if len(p.engine.Targets) > 0 || len(p.engine.Excludes) > 0 {
		secrets = p.Secrets
	}
	secrets = union(secrets, nil)
	if p.State.Serial == 0 || slices.Equal(secrets, p.State.Keys.Secrets) {
		return nil
	}
	p.State.Keys.Secrets = secrets
	return p.engine.Store.Write(p.State)
}
