package state

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"clusterctl/certs"
)

// ServiceAccount is the name of the rotation of the key that signs service account tokens. Other rotations have the
// name of their authority.
const ServiceAccount = "service-account"

// Rotation is the replacement of an authority, or of the service account key, in progress. All machines must trust the
// next authority before it signs anything. Nothing that the former authority signed may remain when its trust ends. So
// a rotation has several phases. Each is recorded, and begins when the previous phase has reached all machines. After
// the last phase the Rotation is deleted.
type Rotation struct {
	Phase string `json:"move"`
	// Peer is the certificate, or public key, that is trusted and does not sign: the next authority's in PhaseTrust,
	// the former authority's in PhaseIssue.
	Peer []byte `json:"other"`
	// Cross is the next authority's certificate signed by the former authority. It is sent with leaf certificates, for
	// clients that have loaded only the former authority, such as long-running pods. It is empty if the former
	// authority has expired, and for keys.
	Cross             []byte        `json:"cross,omitempty"`
	Since             time.Time     `json:"since"`
	Issued            time.Time     `json:"issued,omitzero"` // when the next authority had issued everything again
	Keep              time.Duration `json:"keep"`            // how long the former authority stays trusted after that
	IsFinishRequested bool          `json:"finish,omitempty"`
}

// Phases of a rotation.
const (
	PhaseTrust = "trust" // both are trusted; the former authority signs
	PhaseIssue = "issue" // both are trusted; the next authority signs, and issues everything again
)

// UntilFinished is the value of Keep that keeps a former authority trusted until a user finishes the rotation.
const UntilFinished = time.Duration(-1)

// CA returns the authority that signs, with its key and chain.
func (s *State) CA(name string) certs.Pair {
	p := certs.Pair{Cert: s.CAs[name], Key: s.Keys.CAs[name], Chain: certs.Intermediates(s.CAs[name])}
	if r := s.Rotations[name]; r.Phase == PhaseIssue {
		p.Chain = append(p.Chain, r.Cross...)
	}
	return p
}

// Trust returns the trusted certificates of an authority in PEM, the signing one first.
func (s *State) Trust(name string) []byte {
	return slices.Concat(s.CAs[name], s.Rotations[name].Peer)
}

// Trusted returns the same certificates as Trust, in an order that does not change when the next authority begins to
// sign. Daemons that restart when the file changes need not restart then.
func (s *State) Trusted(name string) []byte {
	return joinInOrder(s.Rotations[name], s.CAs[name])
}

// ServicePublic returns the public keys that verify service account tokens in PEM, in an order that does not change
// when the next key begins to sign.
func (s *State) ServicePublic() []byte {
	return joinInOrder(s.Rotations[ServiceAccount], s.Keys.ServicePublic)
}

// joinInOrder returns the former certificate or key before the next. signs is the one in use.
func joinInOrder(r Rotation, signs []byte) []byte {
	if r.Phase == PhaseIssue {
		return slices.Concat(r.Peer, signs)
	}
	return slices.Concat(signs, r.Peer)
}

// Rotate begins to replace an authority, or the service account key. The next authority does not sign yet, unless the
// current authority has expired. Clients do not trust an expired authority, so the next authority then signs at once.
func (s *State) Rotate(name string, next certs.Pair, keep time.Duration, now time.Time) error {
	if _, already := s.Rotations[name]; already {
		return fmt.Errorf("%s is being replaced already", name)
	}
	r, ended := Rotation{Phase: PhaseTrust, Peer: next.Cert, Since: now, Keep: keep}, false
	if name != ServiceAccount {
		former, err := certs.ParseCert(s.CAs[name])
		if err != nil {
			return fmt.Errorf("read the authority %s: %w", name, err)
		}
		if bytes.Equal(bytes.TrimSpace(s.CAs[name]), bytes.TrimSpace(next.Cert)) {
			return fmt.Errorf("%s is that authority already", name)
		}
		if ended = !former.NotAfter.After(now); !ended {
			if r.Cross, err = certs.Cross(s.CA(name), next.Cert, now); err != nil {
				return err
			}
		}
	}
	s.Rotations, s.Keys.Next = cloneMap(s.Rotations), cloneMap(s.Keys.Next)
	s.Rotations[name], s.Keys.Next[name] = r, next.Key
	if ended {
		s.StartIssuing(name, now)
	}
	return nil
}

// StartIssuing makes the next authority sign. All machines trust it already.
func (s *State) StartIssuing(name string, now time.Time) {
	r := s.Rotations[name]
	next := certs.Pair{Cert: r.Peer, Key: s.Keys.Next[name]}
	r.Phase, r.Since = PhaseIssue, now
	if name == ServiceAccount {
		r.Peer = s.Keys.ServicePublic
		s.Keys.ServicePublic, s.Keys.ServiceAccount = next.Cert, next.Key
	} else {
		r.Peer = s.CAs[name]
		s.CAs, s.Keys.CAs = cloneMap(s.CAs), cloneMap(s.Keys.CAs)
		s.CAs[name], s.Keys.CAs[name] = next.Cert, next.Key
	}
	s.Rotations, s.Keys.Next = cloneMap(s.Rotations), cloneMap(s.Keys.Next)
	delete(s.Keys.Next, name)
	s.Rotations[name] = r
}

// RecordIssuedEverywhere records that everything has been issued again on all machines.
func (s *State) RecordIssuedEverywhere(name string, now time.Time) {
	r := s.Rotations[name]
	r.Issued = now
	s.Rotations = cloneMap(s.Rotations)
	s.Rotations[name] = r
}

// DropFormer ends the trust in the former authority.
func (s *State) DropFormer(name string) {
	s.Rotations = cloneMap(s.Rotations)
	delete(s.Rotations, name)
}

// IsOver reports whether the trust in the former authority must end.
func (r Rotation) IsOver(now time.Time) bool {
	return !r.Issued.IsZero() && (r.IsFinishRequested || r.Keep >= 0 && !now.Before(r.Issued.Add(r.Keep)))
}

// IsKnownAuthority reports whether same returns true for the cluster's current, next or former authority.
func (s *State) IsKnownAuthority(name string, same func(pem []byte) bool) bool {
	return same(s.CAs[name]) || len(s.Rotations[name].Peer) > 0 && same(s.Rotations[name].Peer)
}

// cloneMap copies a map, because other readers may still use the original.
func cloneMap[V any](m map[string]V) map[string]V {
	c := maps.Clone(m)
	if c == nil {
		c = map[string]V{}
	}
	return c
}
