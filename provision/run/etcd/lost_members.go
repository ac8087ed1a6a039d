package etcd

import (
	"fmt"
	"strings"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// HasLostData reports whether a machine's store member has lost its data, for example after a new disk. It cannot
// resume as the same member and must join as a new one.
func HasLostData(s *state.State, m *session.Machine) bool {
	_, member := s.Etcd[m.Name]
	return member && s.Machines[m.Address].HasJoined && m.Agent != nil && !m.Facts.HasEtcdData
}

// CheckLostMajority returns an error if so many members have lost their data that the rest is no majority. Members can
// only join with a majority, and a store that silently started over would be empty.
func CheckLostMajority(s *state.State, machines []*session.Machine) error {
	if s.Restore != nil { // the others join the first member one after another
		return nil
	}
	var lost, left []string
	for _, m := range machines {
		if HasLostData(s, m) && m.Action != plan.Remove {
			lost = append(lost, m.Name)
		} else if _, member := s.Etcd[m.Name]; member && m.Agent != nil && m.Facts.HasEtcdData {
			left = append(left, m.Name)
		}
	}
	members := len(s.Etcd)
	switch {
	case len(lost) == 0 || members-len(lost) > members/2:
		return nil
	case len(left) > 0:
		return fmt.Errorf("%d of %d members of the store have lost their data in /var/lib/etcd (%s), and the rest is "+
			"not a majority. %s still has the data: clusterctl etcd snapshot restore -from-member %s rebuilds the "+
			"store from it (docs/operations/etcd-majority-lost.md)", len(lost), members, strings.Join(lost, ", "),
			strings.Join(left, ", "), left[0])
	}
	return fmt.Errorf("%d of %d members of the store have lost their data in /var/lib/etcd (%s): clusterctl etcd "+
		"snapshot restore brings it back from a snapshot (docs/operations/etcd-all-lost.md); without one, destroy the "+
		"cluster and apply again", len(lost), members, strings.Join(lost, ", "))
}

// UnstartedNames returns the names of the machines to create that have not joined yet.
func UnstartedNames(s *state.State, machines []*session.Machine) (names []string) {
	for _, m := range machines {
		if m.Action == plan.Create && !s.Machines[m.Address].HasJoined {
			names = append(names, m.Name)
		}
	}
	return names
}
