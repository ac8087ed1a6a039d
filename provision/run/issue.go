package run

import (
	"context"
	"slices"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/role"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// issueCertificates issues the certificates that a machine's steps will need.
func (p *Prepared) issueCertificates(m *machine) error {
	some, err := p.issueSteps(m)
	if err != nil || !some {
		return err
	}
	return p.writeState(func() {}) // recorded before the machine receives them
}

// issueAllCertificates does the same as issue for machines that change at the same time, with one write of the state
// for all.
func (p *Prepared) issueAllCertificates(ctx context.Context, list []*machine) error {
	err := p.forEach(ctx, list, func(_ context.Context, m *machine) error {
		_, err := p.issueSteps(m)
		return err
	})
	if err != nil || len(list) == 0 {
		return err
	}
	return p.writeState(func() {})
}

func (p *Prepared) issueSteps(m *machine) (some bool, err error) {
	for i, s := range m.steps {
		issuer, ok := s.(step.Issuer)
		if !ok || m.changes[i].Action == "" {
			continue
		}
		name, request := issuer.CertificateRequest()
		pair, err := certs.Issue(p.State.CA(name), request, p.engine.now())
		if err != nil {
			return false, err
		}
		issuer.SetPair(pair)
		stateMu.Lock()
		err = p.recordIssued(m, s.Label(), name, pair)
		stateMu.Unlock()
		if err != nil {
			return false, err
		}
		some = true
	}
	m.hasCertificates = true
	return some, nil
}

// recordJoined records that a machine is as declared. For machines of the control plane the state is on disk before the
// next machine changes.
func (p *Prepared) recordJoined(m *machine) error {
	if m.HasRole(config.RoleControlPlane) {
		return p.writeState(func() { p.setJoined(m) })
	}
	return p.deferWrite(func() { p.setJoined(m) })
}

func (p *Prepared) setJoined(m *machine) {
	m.hasJoinedNow = true
	release := p.engine.Bundle.Release()
	p.State.RecordRelease(release)
	known := p.State.Machines[m.Address]
	still, gone := splitIssued(known.Issued, m.steps)
	if list := p.certificatesToRevoke(gone); len(list) > 0 {
		p.State.Revoke(list...)
		p.hasRevoked = true
	}
	if known.Machine.HasRole(config.RoleControlPlane) && !m.HasRole(config.RoleControlPlane) {
		p.State.RecordExposure(m.Address, p.engine.now())
	}
	p.State.Machines[m.Address] = state.Machine{
		Machine:    m.Machine,
		HasJoined:  true,
		Identity:   m.facts.Identity,
		Origin:     known.Origin,
		Release:    &release,
		IsCordoned: known.IsCordoned,
		Issued:     still,
	}
	if !slices.ContainsFunc(
		role.EtcdMachines(p.engine.Config, p.State),
		func(e config.Machine) bool { return e.Name == m.Name },
	) {
		delete(p.State.Etcd, m.Name)
	}
}

func (p *Prepared) forgetMachine(m *machine) error {
	return p.writeState(func() {
		known := p.State.Machines[m.Address]
		p.State.Revoke(p.certificatesToRevoke(known.Issued)...)
		if known.HasJoined && known.Machine.HasRole(config.RoleControlPlane) && !m.createsNode {
			p.State.RecordExposure(m.Address, p.engine.now())
		}
		delete(p.State.Machines, m.Address)
		delete(p.State.Etcd, m.Name)
	})
}
