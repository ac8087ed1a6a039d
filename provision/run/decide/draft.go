package decide

import (
	"fmt"
	"slices"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Draft is a state with which a run begins.
type Draft struct {
	State           *state.State
	HasRenames      bool
	FormerAddresses map[string]string
}

// Draft returns the state with which the run begins: s with the keys that the configuration needs and the names that it
// gives. It does not change s.
func (p *Situation) Draft(s *state.State) (d Draft, err error) {
	d.State = s.Clone()
	if !p.Options.IsDestroy {
		if err := d.State.Keys.Encryption.Add(p.Config.Encryption, p.IsNewCluster); err != nil {
			return d, fmt.Errorf("make a key for what is stored: %w", err)
		}
	}
	if d.HasRenames, err = ApplyMoves(p.Config, d.State); err != nil {
		return d, err
	}
	now, former, err := plan.MatchMachines(p.Config.Machines, d.State.Machines)
	if err != nil && !p.Options.IsDestroy { // a cluster that is being destroyed may have any names
		return d, err
	}
	d.State.Machines, d.FormerAddresses = now, former
	return d, nil
}

// EtcdCluster returns the store's cluster ID as reported by a machine that has a member of it, or the ID in the state.
func EtcdCluster(s *state.State, machines []*session.Machine) string {
	for _, m := range machines {
		if _, member := s.Etcd[m.Name]; member && s.Machines[m.Address].HasJoined && m.Facts.EtcdCluster != "" &&
			!slices.Contains(s.FormerStores, m.Facts.EtcdCluster) {
			return m.Facts.EtcdCluster
		}
	}
	return s.EtcdCluster
}
