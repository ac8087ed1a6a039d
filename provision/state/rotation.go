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

// Rotation is the replacement of an authority, or of the service account key, in progress. All must trust the next one
// before it signs anything. Nothing signed by the former one may remain when that is no longer trusted. So a rotation
// takes several moves. Each is recorded and has reached all machines before the next. After the last move the Rotation
// is deleted.
type Rotation struct {
	Move string `json:"move"`
	// Other is the certificate, or public key, that is trusted and does not sign: first the next one, then the former
	// one.
	Other []byte `json:"other"`
	// Cross is the next authority's certificate signed by the former authority. It is sent with leaf certificates, for
	// clients that have loaded only the former authority, such as long-running pods. It is empty if the former
	// authority has expired, and for keys.
	Cross  []byte        `json:"cross,omitempty"`
	Since  time.Time     `json:"since"`
	Issued time.Time     `json:"issued,omitzero"` // when all machines had everything issued by the next one
	Keep   time.Duration `json:"keep"`            // how long the former one stays trusted after that
	Finish bool          `json:"finish,omitempty"`
}

// Moves of a rotation.
const (
	Trust = "trust" // both are trusted; the former one signs
	Issue = "issue" // both are trusted; the next one signs, and everything is issued again
)

// UntilFinished is the value of Keep that keeps a former authority trusted until a user finishes the rotation.
const UntilFinished = time.Duration(-1)

// CA returns the authority that signs, with its key and chain.
func (s *State) CA(name string) certs.Pair {
	p := certs.Pair{Cert: s.CAs[name], Key: s.Keys.CAs[name], Chain: certs.Between(s.CAs[name])}
	if r := s.Rotations[name]; r.Move == Issue {
		p.Chain = append(p.Chain, r.Cross...)
	}
	return p
}

// Trust returns the trusted certificates of an authority in PEM, the signing one first.
func (s *State) Trust(name string) []byte {
	return slices.Concat(s.CAs[name], s.Rotations[name].Other)
}

// Trusted returns the same certificates as Trust, in an order that does not change when the next authority begins to
// sign. Daemons that restart when the file changes need not restart then.
func (s *State) Trusted(name string) []byte {
	return inOrder(s.Rotations[name], s.CAs[name])
}

// ServicePublic returns the public keys that verify service account tokens in PEM, in an order that does not change
// when the next key begins to sign.
func (s *State) ServicePublic() []byte {
	return inOrder(s.Rotations[ServiceAccount], s.Keys.ServicePublic)
}

// inOrder returns the former one before the next one.
func inOrder(r Rotation, signs []byte) []byte {
	if r.Move == Issue {
		return slices.Concat(r.Other, signs)
	}
	return slices.Concat(signs, r.Other)
}

// Rotate begins to replace an authority, or the service account key. The next one does not sign yet, unless the present
// authority has expired. Clients do not trust an expired authority, so then the next one signs at once.
func (s *State) Rotate(name string, next certs.Pair, keep time.Duration, now time.Time) error {
	if _, already := s.Rotations[name]; already {
		return fmt.Errorf("%s is being replaced already", name)
	}
	r, ended := Rotation{Move: Trust, Other: next.Cert, Since: now, Keep: keep}, false
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
	s.Rotations, s.Keys.Next = clone(s.Rotations), clone(s.Keys.Next)
	s.Rotations[name], s.Keys.Next[name] = r, next.Key
	if ended {
		s.Issue(name, now)
	}
	return nil
}

// Issue makes the next one sign. All machines trust it already.
func (s *State) Issue(name string, now time.Time) {
	r := s.Rotations[name]
	next := certs.Pair{Cert: r.Other, Key: s.Keys.Next[name]}
	r.Move, r.Since = Issue, now
	if name == ServiceAccount {
		r.Other = s.Keys.ServicePublic
		s.Keys.ServicePublic, s.Keys.ServiceAccount = next.Cert, next.Key
	} else {
		r.Other = s.CAs[name]
		s.CAs, s.Keys.CAs = clone(s.CAs), clone(s.Keys.CAs)
		s.CAs[name], s.Keys.CAs[name] = next.Cert, next.Key
	}
	s.Rotations, s.Keys.Next = clone(s.Rotations), clone(s.Keys.Next)
	delete(s.Keys.Next, name)
	s.Rotations[name] = r
}

// IssuedEverywhere records that everything has been issued again on all machines.
func (s *State) IssuedEverywhere(name string, now time.Time) {
	r := s.Rotations[name]
	r.Issued = now
	s.Rotations = clone(s.Rotations)
	s.Rotations[name] = r
}

// Drop ends the trust in the former one.
func (s *State) Drop(name string) {
	s.Rotations = clone(s.Rotations)
	delete(s.Rotations, name)
}

// Over reports whether the former one must be dropped.
func (r Rotation) Over(now time.Time) bool {
	return !r.Issued.IsZero() && (r.Finish || r.Keep >= 0 && !now.Before(r.Issued.Add(r.Keep)))
}

// Ours reports whether same returns true for the authority of this cluster, or for its next or former one.
func (s *State) Ours(name string, same func(pem []byte) bool) bool {
	return same(s.CAs[name]) || len(s.Rotations[name].Other) > 0 && same(s.Rotations[name].Other)
}

// clone copies a map, because other readers may still use the original.
func clone[V any](m map[string]V) map[string]V {
	c := maps.Clone(m)
	if c == nil {
		c = map[string]V{}
	}
	return c
}
