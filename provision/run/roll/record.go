package roll

import (
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/role"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// recordJoined records that a machine is as declared. For machines of the control plane the state is on disk before the
// next machine changes.
func (r *Roller) recordJoined(m *session.Machine) error {
	if m.HasRole(config.RoleControlPlane) {
		return r.Ledger.Change(func(s *state.State) { r.setJoined(s, m) })
	}
	return r.Ledger.Defer(func(s *state.State) { r.setJoined(s, m) })
}

func (r *Roller) setJoined(s *state.State, m *session.Machine) {
	m.HasJoinedNow = true
	release := r.Situation.Release
	s.RecordRelease(release)
	recorded := s.Machines[m.Address]
	still, removed := certificate.SplitIssued(recorded.Issued, m.Steps)
	if list := certificate.Revocable(removed, r.Session.Now()); len(list) > 0 {
		s.Revoke(list...)
		r.hasRevoked = true
	}
	if recorded.Machine.HasRole(config.RoleControlPlane) && !m.HasRole(config.RoleControlPlane) {
		s.RecordExposure(m.Address, r.Session.Now())
	}
	s.Machines[m.Address] = state.Machine{
		Machine:    m.Machine,
		HasJoined:  true,
		Identity:   m.Facts.Identity,
		Origin:     recorded.Origin,
		Release:    &release,
		IsCordoned: recorded.IsCordoned,
		Issued:     still,
	}
	if !slices.ContainsFunc(role.EtcdMachines(r.Situation.Config, s),
		func(e config.Machine) bool { return e.Name == m.Name }) {
		delete(s.Etcd, m.Name)
	}
}
