package certificate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"clusterctl/certs"
	daemons "clusterctl/daemons/config"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// RecordIssued records in s the certificate that the machine of an address received for a step, so that it can be
// revoked when the machine is removed.
func RecordIssued(s *state.State, address, label, ca string, pair certs.Pair) error {
	cert, err := certs.ParseCert(pair.Cert)
	if err != nil {
		return fmt.Errorf("read the certificate that was issued: %w", err)
	}
	recorded := s.Machines[address]
	issued := map[string]certs.Revoked{}
	for k, v := range recorded.Issued {
		issued[k] = v
	}
	next := certs.Revoked{CA: ca, Serial: cert.SerialNumber.Text(16), Name: cert.Subject.CommonName,
		Until: cert.NotAfter}
	if before, ok := issued[label]; ok && before.Name != next.Name {
		issued[label+supersededSuffix] = before
	}
	issued[label] = next
	recorded.Issued = issued
	s.Machines[address] = recorded
	return nil
}

// supersededSuffix is the suffix of the label of a certificate that was replaced by one with another common name. Such
// a certificate is revoked when the machine uses the new one.
const supersededSuffix = " (superseded)"

// HasReplacedFormerUsers reports whether this run replaced the last certificates of daemons.FormerUsers. Daemons of
// former releases had the same user on all machines; now each machine has its own.
func HasReplacedFormerUsers(s *state.State) bool {
	replaced := false
	for _, m := range s.Machines {
		for label, revoked := range m.Issued {
			switch {
			case !slices.Contains(daemons.FormerUsers, revoked.Name):
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

// RevokeSuperseded revokes in s the superseded certificates of machines that now use the new ones. It reports whether
// there were any.
func RevokeSuperseded(s *state.State, machines []*session.Machine, now time.Time) bool {
	some := false
	for _, m := range machines {
		recorded, ok := s.Machines[m.Address]
		if !ok || !m.IsConnected() || m.LeftOutReason != nil {
			continue
		}
		issued := maps.Clone(recorded.Issued)
		for label, before := range recorded.Issued {
			if !strings.HasSuffix(label, supersededSuffix) {
				continue
			}
			if now.Before(before.Until) {
				before.At = now
				s.Revoke(before)
				some = true
			}
			delete(issued, label)
		}
		recorded.Issued = issued
		s.Machines[m.Address] = recorded
	}
	return some
}

// SplitIssued divides the certificates that a machine has got into those that stay on it and those that steps remove.
func SplitIssued(issued map[string]certs.Revoked, steps []step.Step) (still, removed map[string]certs.Revoked) {
	still, removed = maps.Clone(issued), map[string]certs.Revoked{}
	for _, s := range steps {
		absent, ok := s.(*step.Absent)
		if !ok {
			continue
		}
		for label, r := range issued {
			_, file, _ := strings.Cut(strings.TrimSuffix(label, supersededSuffix), " ")
			if file == absent.Path || strings.HasPrefix(file, absent.Path+"/") {
				delete(still, label)
				removed[label] = r
			}
		}
	}
	return still, removed
}

// Revocable returns those of the issued certificates that must be revoked now, which are the ones that have not
// expired.
func Revocable(issued map[string]certs.Revoked, now time.Time) (list []certs.Revoked) {
	for _, label := range slices.Sorted(maps.Keys(issued)) {
		if r := issued[label]; now.Before(r.Until) {
			r.At = now
			list = append(list, r)
		}
	}
	return list
}

// RevocationChange returns the plan's line about the certificates of a machine that are revoked: those of roles that
// the machine no longer has, and those that an interrupted run replaced and did not revoke. It returns nil if there are
// none.
func RevocationChange(recorded state.Machine, steps []step.Step, now time.Time) *step.Change {
	_, removed := SplitIssued(recorded.Issued, steps)
	for label, r := range recorded.Issued {
		if strings.HasSuffix(label, supersededSuffix) {
			removed[label] = r
		}
	}
	var names []string
	for label, r := range removed {
		if now.Before(r.Until) {
			_, file, _ := strings.Cut(strings.TrimSuffix(label, supersededSuffix), " ")
			names = append(names, Name(file))
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return &step.Change{Action: step.Delete, Kind: "certificate", Name: strings.Join(names, ", "), Note: "revoke"}
}

// HasFormerUsers reports whether a machine has a certificate of one of daemons.FormerUsers.
func HasFormerUsers(s *state.State) bool {
	for _, m := range s.Machines {
		for _, revoked := range m.Issued {
			if slices.Contains(daemons.FormerUsers, revoked.Name) {
				return true
			}
		}
	}
	return false
}
