package run

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
func (p *Prepared) recordJoined(m *session.Machine) error {
	if m.HasRole(config.RoleControlPlane) {
		return p.ledger.Change(func(s *state.State) { p.setJoined(s, m) })
	}
	return p.ledger.Defer(func(s *state.State) { p.setJoined(s, m) })
}

func (p *Prepared) setJoined(s *state.State, m *session.Machine) {
	m.HasJoinedNow = true
	release := p.engine.Bundle.Release()
	s.RecordRelease(release)
	known := s.Machines[m.Address]
	still, gone := certificate.SplitIssued(known.Issued, m.Steps)
	if list := certificate.Revocable(gone, p.engine.now()); len(list) > 0 {
		s.Revoke(list...)
		p.hasRevoked = true
	}
	if known.Machine.HasRole(config.RoleControlPlane) && !m.HasRole(config.RoleControlPlane) {
		s.RecordExposure(m.Address, p.engine.now())
	}
	s.Machines[m.Address] = state.Machine{
		Machine:    m.Machine,
		HasJoined:  true,
		Identity:   m.Facts.Identity,
		Origin:     known.Origin,
		Release:    &release,
		IsCordoned: known.IsCordoned,
		Issued:     still,
	}
	if !slices.ContainsFunc(
		role.EtcdMachines(p.engine.Config, s),
		func(e config.Machine) bool { return e.Name == m.Name },
	) {
		delete(s.Etcd, m.Name)
	}
}

func (p *Prepared) forgetMachine(m *session.Machine) error {
	return p.ledger.Change(func(s *state.State) {
		known := s.Machines[m.Address]
		s.Revoke(certificate.Revocable(known.Issued, p.engine.now())...)
		if known.HasJoined && known.Machine.HasRole(config.RoleControlPlane) && !m.CreatesNode {
			s.RecordExposure(m.Address, p.engine.now())
		}
		delete(s.Machines, m.Address)
		delete(s.Etcd, m.Name)
	})
}
