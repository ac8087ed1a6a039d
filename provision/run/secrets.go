package run

import "slices"

// union returns the sorted union of two lists, without duplicates.
func union(a, b []string) []string {
	list := append(slices.Clone(a), b...)
	slices.Sort(list)
	return slices.Compact(list)
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
	p.State.Keys.Secrets = secrets
	return p.ledger.Write()
}
