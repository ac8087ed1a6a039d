package run

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"clusterctl/certs"
	daemons "clusterctl/daemons/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// recordIssued records the certificate that a machine received for a step, so that it can be revoked when the machine
// is removed.
func (p *Prepared) recordIssued(m *machine, label, ca string, pair certs.Pair) error {
	cert, err := certs.ParseCert(pair.Cert)
	if err != nil {
		return fmt.Errorf("read the certificate that was issued: %w", err)
	}
	known := p.State.Machines[m.Address]
	issued := map[string]certs.Revoked{}
	for k, v := range known.Issued {
		issued[k] = v
	}
	next := certs.Revoked{CA: ca, Serial: cert.SerialNumber.Text(16), Name: cert.Subject.CommonName,
		Until: cert.NotAfter}
	if was, ok := issued[label]; ok && was.Name != next.Name {
		issued[label+supersededSuffix] = was
	}
	issued[label] = next
	known.Issued = issued
	p.State.Machines[m.Address] = known
	return nil
}

// supersededSuffix is the suffix of the label of a certificate that was replaced by one with another common name. Such
// a certificate is revoked when the machine uses the new one.
const supersededSuffix = " (superseded)"

// hasReplacedFormerUsers reports whether this run replaced the last certificates of daemons.FormerUsers. Daemons of
// former releases had the same user on all machines; now each machine has its own.
func (p *Prepared) hasReplacedFormerUsers() bool {
	stateMu.Lock()
	defer stateMu.Unlock()
	replaced := false
	for _, m := range p.State.Machines {
		for label, is := range m.Issued {
			switch {
			case !slices.Contains(daemons.FormerUsers, is.Name):
			case strings.HasSuffix(label, supersededSuffix) && m.Failed == nil:
				// a machine that was rolled back runs former daemons
				replaced = true
			default:
				return false
			}
		}
	}
	return replaced
}

// revokeSuperseded revokes the superseded certificates of machines that now use the new ones. It reports whether there
// were any.
func (p *Prepared) revokeSuperseded() bool {
	stateMu.Lock()
	defer stateMu.Unlock()
	some := false
	for _, m := range p.machines {
		known, ok := p.State.Machines[m.Address]
		if !ok || m.agent == nil || m.unreachedReason != nil || m.leftOutReason != nil {
			continue
		}
		issued := maps.Clone(known.Issued)
		for label, was := range known.Issued {
			if !strings.HasSuffix(label, supersededSuffix) {
				continue
			}
			if now := p.engine.now(); now.Before(was.Until) {
				was.At = now
				p.State.Revoke(was)
				some = true
			}
			delete(issued, label)
		}
		known.Issued = issued
		p.State.Machines[m.Address] = known
	}
	return some
}

// splitIssued divides the certificates that a machine has got into those that stay on it and those that steps remove.
func splitIssued(issued map[string]certs.Revoked, steps []step.Step) (still, gone map[string]certs.Revoked) {
	still, gone = maps.Clone(issued), map[string]certs.Revoked{}
	for _, s := range steps {
		absent, ok := s.(*step.Absent)
		if !ok {
			continue
		}
		for label, r := range issued {
			_, file, _ := strings.Cut(strings.TrimSuffix(label, supersededSuffix), " ")
			if file == absent.Path || strings.HasPrefix(file, absent.Path+"/") {
				delete(still, label)
				gone[label] = r
			}
		}
	}
	return still, gone
}

// certificatesToRevoke returns those of the issued certificates that must be revoked now, which are the ones that have
// not expired.
func (p *Prepared) certificatesToRevoke(issued map[string]certs.Revoked) (list []certs.Revoked) {
	now := p.engine.now()
	for _, label := range slices.Sorted(maps.Keys(issued)) {
		if r := issued[label]; now.Before(r.Until) {
			r.At = now
			list = append(list, r)
		}
	}
	return list
}

// hasFormerUsers calls hasFormerUsers with the current state.
func (p *Prepared) hasFormerUsers() bool {
	stateMu.Lock()
	defer stateMu.Unlock()
	return hasFormerUsers(p.State)
}

// revocationChange returns the plan's line about the certificates of a machine that are revoked: those of roles that
// the machine no longer has, and those that an interrupted run replaced and did not revoke. It returns nil if there are
// none.
func (p *Prepared) revocationChange(m *machine) *step.Change {
	_, gone := splitIssued(p.machineState(m).Issued, m.steps)
	for label, r := range p.machineState(m).Issued {
		if strings.HasSuffix(label, supersededSuffix) {
			gone[label] = r
		}
	}
	var names []string
	for label, r := range gone {
		if p.engine.now().Before(r.Until) {
			_, file, _ := strings.Cut(strings.TrimSuffix(label, supersededSuffix), " ")
			names = append(names, CertificateName(file))
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return &step.Change{Action: step.Delete, Kind: "certificate", Name: strings.Join(names, ", "), Note: "revoke"}
}

// revocationLists caches the signed revocation lists. They are the same for all machines until a certificate is revoked
// or an authority changes.
type revocationLists struct {
	revoked []certs.Revoked
	cas     map[string][]byte
	at      time.Time
	lists   map[string][]byte
}

// listLifetime is how long revocation lists are reused. Expired certificates are left out of newer ones.
const listLifetime = time.Minute

// currentLists returns the current revocation lists. The caller holds writing.
func (p *Prepared) currentLists() (map[string][]byte, error) {
	now, r := p.engine.now(), &p.crlCache
	if r.lists != nil && now.Sub(r.at) < listLifetime && slices.Equal(r.revoked, p.State.Revoked) &&
		maps.EqualFunc(r.cas, p.State.CAs, bytes.Equal) {
		return r.lists, nil
	}
	lists, err := p.State.RevocationLists(now)
	if err != nil {
		return nil, err
	}
	*r = revocationLists{revoked: slices.Clone(p.State.Revoked), cas: maps.Clone(p.State.CAs), at: now, lists: lists}
	return lists, nil
}

// sendRevocations makes all machines refuse the certificates that this run has revoked. A machine that is not reached
// receives the list with its next apply.
func (p *Prepared) sendRevocations(ctx context.Context) error {
	stateMu.Lock()
	lists, err := p.currentLists()
	stateMu.Unlock()
	if err != nil {
		return err
	}
	var stay []*machine
	for _, m := range p.machines {
		if m.agent != nil && m.unreachedReason == nil && m.action != plan.Remove &&
			p.State.Machines[m.Address].HasJoined {
			stay = append(stay, m)
		}
	}
	return p.forEach(ctx, stay, func(ctx context.Context, m *machine) error {
		steps := role.Revocations(role.Input{Cluster: p.engine.Config, Machine: m.Machine, Revoked: lists})
		if err := m.agent.Apply(ctx, steps, nil); err != nil {
			return fmt.Errorf("send the machine the list of revoked certificates: %w", err)
		}
		return nil
	})
}
