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
	known := s.Machines[address]
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
	s.Machines[address] = known
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

// RevokeSuperseded revokes in s the superseded certificates of machines that now use the new ones. It reports whether
// there were any.
func RevokeSuperseded(s *state.State, machines []*session.Machine, now time.Time) bool {
	some := false
	for _, m := range machines {
		known, ok := s.Machines[m.Address]
		if !ok || !m.IsConnected() || m.LeftOutReason != nil {
			continue
		}
		issued := maps.Clone(known.Issued)
		for label, was := range known.Issued {
			if !strings.HasSuffix(label, supersededSuffix) {
				continue
			}
			if now.Before(was.Until) {
				was.At = now
				s.Revoke(was)
				some = true
			}
			delete(issued, label)
		}
		known.Issued = issued
		s.Machines[m.Address] = known
	}
	return some
}

// SplitIssued divides the certificates that a machine has got into those that stay on it and those that steps remove.
func SplitIssued(issued map[string]certs.Revoked, steps []step.Step) (still, gone map[string]certs.Revoked) {
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
func RevocationChange(known state.Machine, steps []step.Step, now time.Time) *step.Change {
	_, gone := SplitIssued(known.Issued, steps)
	for label, r := range known.Issued {
		if strings.HasSuffix(label, supersededSuffix) {
			gone[label] = r
		}
	}
	var names []string
	for label, r := range gone {
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
		for _, is := range m.Issued {
			if slices.Contains(daemons.FormerUsers, is.Name) {
				return true
			}
		}
	}
	return false
}
