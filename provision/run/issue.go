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

// issue issues the certificates that a machine's steps will need.
func (p *Prepared) issue(m *machine) error {
	some, err := p.give(m)
	if err != nil || !some {
		return err
	}
	return p.write(func() {}) // recorded before the machine receives them
}

// issueAll does the same as issue for machines that change at the same time, with one write of the state for all.
func (p *Prepared) issueAll(ctx context.Context, list []*machine) error {
	err := p.each(ctx, list, func(_ context.Context, m *machine) error {
		_, err := p.give(m)
		return err
	})
	if err != nil || len(list) == 0 {
		return err
	}
	return p.write(func() {})
}

func (p *Prepared) give(m *machine) (some bool, err error) {
	for i, s := range m.steps {
		issuer, ok := s.(step.Issuer)
		if !ok || m.changes[i].Action == "" {
			continue
		}
		name, request := issuer.Wants()
		pair, err := certs.Issue(p.State.CA(name), request, p.engine.now())
		if err != nil {
			return false, err
		}
		issuer.Give(pair)
		writing.Lock()
		err = p.noteIssued(m, s.Label(), name, pair)
		writing.Unlock()
		if err != nil {
			return false, err
		}
		some = true
	}
	m.issued = true
	return some, nil
}

// joined records that a machine is as declared. For machines of the control plane the state is on disk before the next
// machine changes.
func (p *Prepared) joined(m *machine) error {
	if m.Has(config.RoleControlPlane) {
		return p.write(func() { p.join(m) })
	}
	return p.owe(func() { p.join(m) })
}

func (p *Prepared) join(m *machine) {
	m.came = true
	release := p.engine.Bundle.Release()
	p.State.Had(release)
	known := p.State.Machines[m.Address]
	still, gone := withdrawn(known.Issued, m.steps)
	if list := p.revoked(gone); len(list) > 0 {
		p.State.Revoke(list...)
		p.revokes = true
	}
	if known.Machine.Has(config.RoleControlPlane) && !m.Has(config.RoleControlPlane) {
		p.State.Expose(m.Address, p.engine.now())
	}
	p.State.Machines[m.Address] = state.Machine{
		Machine:  m.Machine,
		Joined:   true,
		Identity: m.facts.Identity,
		Origin:   known.Origin,
		Release:  &release,
		Cordoned: known.Cordoned,
		Issued:   still,
	}
	if !slices.ContainsFunc(
		role.EtcdMachines(p.engine.Config, p.State),
		func(e config.Machine) bool { return e.Name == m.Name },
	) {
		delete(p.State.Etcd, m.Name)
	}
}

func (p *Prepared) forget(m *machine) error {
	return p.write(func() {
		known := p.State.Machines[m.Address]
		p.State.Revoke(p.revoked(known.Issued)...)
		if known.Joined && known.Machine.Has(config.RoleControlPlane) && !m.makes {
			p.State.Expose(m.Address, p.engine.now())
		}
		delete(p.State.Machines, m.Address)
		delete(p.State.Etcd, m.Name)
	})
}
