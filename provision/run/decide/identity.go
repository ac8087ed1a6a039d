package decide

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// CheckIdentities compares the machines that were reached with the state, and fails if one is not the machine that its
// block means. foreign are machines to be removed that now serve another cluster, so that they must not be cleaned.
func (p *Situation) CheckIdentities() (foreign map[*session.Machine]error, err error) {
	check := identities{p}
	foreign = map[*session.Machine]error{}
	var errs []error
	for _, m := range p.Machines {
		if m.Agent == nil {
			continue
		}
		if check.isForeign(m) {
			err := fmt.Errorf("it serves another cluster: the certificate in %s was not issued by this cluster's "+
				"authority. Take it out of that cluster first, or out of this configuration", host.ClusterCAPath)
			if p.IsNewCluster {
				err = fmt.Errorf("it serves a cluster, and there is no state of one in %s. If that was lost, run "+
					"clusterctl state rebuild; otherwise take the machine out of that cluster first",
					p.StateDir)
			}
			if m.Action == plan.Remove {
				foreign[m] = err
				continue
			}
			errs = append(errs, m.Wrap(err))
			continue
		}
		if err := check.outdated(m); err != nil {
			errs = append(errs, m.Wrap(err))
		} else if err := check.duplicate(m); err != nil {
			errs = append(errs, m.Wrap(err))
		} else if err := check.address(m); err != nil && !p.Options.IsDestroy {
			errs = append(errs, m.Wrap(err))
		}
	}
	return foreign, errors.Join(errs...)
}

// identities checks which machine one is.
type identities struct{ *Situation }

// isForeign reports whether a machine serves another cluster.
func (p identities) isForeign(m *session.Machine) bool {
	return m.Facts.ClusterCA != "" &&
		!p.State.IsKnownAuthority(certs.ClusterCA,
			func(pem []byte) bool { return m.Facts.ClusterCA == host.Fingerprint(pem) })
}

// outdated returns an error if a machine of the cluster holds something that only a later state can have given to
// it. An apply with this state would take that back; with a key of the store, everything encrypted with it would be
// lost. New and reinstalled machines hold nothing to keep.
func (p identities) outdated(m *session.Machine) error {
	if p.Options.IsDestroy || p.Options.IsReplaced(m.Address) || !p.State.Machines[m.Address].HasJoined {
		return nil
	}
	later := p.State.LaterSecrets(m.Facts.SecretDigests)
	if len(later) == 0 {
		return nil
	}
	return fmt.Errorf("the state in %s is older than the cluster: this machine was given, by a later one, %s. An "+
		"apply would take that back. Bring the latest state here, from where the last apply was run; if there is none "+
		"any more, rebuild it with clusterctl state rebuild -force. When other machines do not say this, it is this "+
		"one that is old, its disk from a copy: apply -replace %s", p.StateDir, strings.Join(later, ", "), m.Address)
}

// duplicate returns an error in two cases: a machine to remove is the same as one that stays, known there by
// another address; or a machine to create is already in the cluster.
func (p identities) duplicate(m *session.Machine) error {
	if p.Options.IsDestroy {
		return nil
	}
	for _, other := range p.Machines {
		switch {
		case other == m || other.Agent == nil && other.Action != plan.Remove:
		case m.Action == plan.Remove && other.Action != plan.Remove && isSameMachine(m, other):
			return fmt.Errorf("it is no longer declared, and is the same machine as %s, which is: it would be "+
				"cleaned. Keep one block for it, with the name and the address that it was applied with (%s, %s)",
				other.Address, m.Name, m.IP)
		case m.Action == plan.Create && other.Action == plan.Remove && other.Agent == nil && m.Facts.Identity != "" &&
			m.Facts.Identity == p.State.Machines[other.Address].Identity:
			return fmt.Errorf("it is the machine that was applied as %s at %s, by its machine-id and host keys. Write "+
				"that block with the new address instead: a new block makes another machine of it", other.Address,
				other.IP)
		}
	}
	return nil
}

// isSameMachine reports whether two machines, both reached, are the same.
func isSameMachine(a, b *session.Machine) bool {
	same := a.Facts.Identity != "" && a.Facts.Identity == b.Facts.Identity &&
		slices.Equal(a.Facts.Addresses, b.Facts.Addresses)
	return same || slices.Contains(b.Facts.Addresses, a.IP.String())
}

// address returns an error if a block has another address than the one with which its machine was applied. It
// returns nil if this is the same machine and it can continue under a new address.
func (p identities) address(m *session.Machine) error {
	recorded, ok := p.State.Machines[m.Address]
	if !ok || m.Action == plan.Remove || recorded.Machine.IP == m.IP {
		return nil
	}
	same := recorded.Identity == m.Facts.Identity && recorded.Identity != ""
	if recorded.Identity == "" {
		same = m.Facts.ClusterCA != "" // and it is this cluster's authority, which isForeign has checked
	}
	if !same {
		return fmt.Errorf("it was applied to the machine at %s, and the one at %s is another. Give that a block of "+
			"its own, apply, then take out the block of the old one and apply again", recorded.Machine.IP, m.IP)
	}
	if recorded.Machine.HasRole(config.RoleControlPlane) || m.HasRole(config.RoleControlPlane) {
		return fmt.Errorf("its address was %s: machines of the control plane are known to the others by their "+
			"addresses. Take the block out and apply, then bring it in again with the new address %s",
			recorded.Machine.IP,
			m.IP)
	}
	return nil
}

// OriginIdentity returns the identity that a machine's provider ID is made of. That is its first identity, for as long
// as the machine holds what the cluster gave it. Host keys may be replaced; a Node keeps its provider ID and would then
// be taken for another machine's. A reinstalled machine gets a new origin, as does one whose recorded origin is also
// that of another machine.
func (p *Situation) OriginIdentity(m *session.Machine) string {
	before := machineOrigin(p.State.Machines[m.Address])
	if m.Agent == nil || m.Facts.Identity == "" {
		return before
	}
	if before == "" || m.Facts.ClusterCA == "" || p.Options.IsReplaced(m.Address) {
		return m.Facts.Identity
	}
	for address, other := range p.State.Machines {
		if address != m.Address && machineOrigin(other) == before {
			return m.Facts.Identity
		}
	}
	return before
}

func machineOrigin(m state.Machine) string { return cmp.Or(m.Origin, m.Identity) }

// RecordIdentities records the identities of the reached machines in s.
func (p *Situation) RecordIdentities(s *state.State) {
	for _, m := range p.Machines {
		if recorded, ok := s.Machines[m.Address]; ok && m.Agent != nil && m.UnreachedReason == nil &&
			m.Facts.Identity != "" {
			origin := p.OriginIdentity(m)
			if recorded.Identity, recorded.Origin = m.Facts.Identity, ""; origin != recorded.Identity {
				recorded.Origin = origin
			}
			s.Machines[m.Address] = recorded
		}
	}
}
