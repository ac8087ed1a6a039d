// Package certificate issues, renews and revokes the certificates of machines during a run.
package certificate

import (
	"context"
	"time"

	"clusterctl/certs"
	"clusterctl/provision/run/ledger"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Issuer issues certificates and records them in the ledger. It is safe for concurrent use on different machines.
type Issuer struct {
	Ledger *ledger.Ledger
	Now    func() time.Time
}

// Issue issues the certificates that a machine's steps need. They are on disk before the machine receives them.
func (i *Issuer) Issue(m *session.Machine) error {
	some, err := i.issueSteps(m)
	if err != nil || !some {
		return err
	}
	return i.Ledger.Write()
}

// IssueAll does the same as Issue for machines that change at the same time, with one write of the state for all.
func (i *Issuer) IssueAll(ctx context.Context, s *session.Session, list []*session.Machine) error {
	err := s.ForEach(ctx, list, func(_ context.Context, m *session.Machine) error {
		_, err := i.issueSteps(m)
		return err
	})
	if err != nil || len(list) == 0 {
		return err
	}
	return i.Ledger.Write()
}

func (i *Issuer) issueSteps(m *session.Machine) (some bool, err error) {
	for at, one := range m.Steps {
		issuer, ok := one.(step.Issuer)
		if !ok || m.Changes[at].Action == "" {
			continue
		}
		name, request := issuer.CertificateRequest()
		var ca certs.Pair
		i.Ledger.View(func(s *state.State) { ca = s.CA(name) })
		pair, err := certs.Issue(ca, request, i.Now())
		if err != nil {
			return false, err
		}
		issuer.SetPair(pair)
		i.Ledger.Record(func(s *state.State) { err = RecordIssued(s, m.Address, one.Label(), name, pair) })
		if err != nil {
			return false, err
		}
		some = true
	}
	m.HasCertificates = true
	return some, nil
}
