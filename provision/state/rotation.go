package state

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"clusterctl/certs"
)

// ServiceAccount names the rotation of the key that signs service accounts' tokens. Other rotations have their
// authority's name.
const ServiceAccount = "service-account"

// Rotation is an authority, or the key of service accounts, on its way to be replaced. Everybody must trust the next
// one before anything is signed with it, and nothing of the former one may be left when that is not trusted any more:
// so it goes in moves, each of which is written down and has reached all machines before the next. After the last there
// is no Rotation.
type Rotation struct {
	Move string `json:"move"`
	// the certificate (or public key) that is trusted and does not sign: the next one, then the former one
	Other []byte `json:"other"`
	// Cross is the former authority's word for the next one, shown with what that signs: to clients that have only read
	// the former one, pods that run for long say. Empty where the former one has ended, and for keys.
	Cross  []byte        `json:"cross,omitempty"`
	Since  time.Time     `json:"since"`
	Issued time.Time     `json:"issued,omitzero"` // when the next one had signed everything on all machines
	Keep   time.Duration `json:"keep"`            // how long after that the former one is trusted
	Finish bool          `json:"finish,omitempty"`
}

// The moves of a rotation.
const (
	Trust = "trust" // both are trusted, the former one signs
	Issue = "issue" // both are trusted, the next one signs, and what the former one has signed is issued anew
)

// UntilFinished is to keep a former authority until somebody says that nobody needs it.
const UntilFinished = time.Duration(-1)

// CA returns the authority that signs.
func (s *State) CA(name string) certs.Pair {
	p := certs.Pair{Cert: s.CAs[name], Key: s.Keys.CAs[name], Chain: certs.Between(s.CAs[name])}
	if r := s.Rotations[name]; r.Move == Issue {
		p.Chain = append(p.Chain, r.Cross...)
	}
	return p
}

// Trust returns the certificates of an authority that are trusted, PEM: first the one that signs.
func (s *State) Trust(name string) []byte {
	return slices.Concat(s.CAs[name], s.Rotations[name].Other)
}

// Trusted is Trust in an order that stays when the next one begins to sign: a daemon that starts anew for another file
// does not.
func (s *State) Trusted(name string) []byte {
	return inOrder(s.Rotations[name], s.CAs[name])
}

// ServicePublic returns the keys with which service accounts' tokens are verified, PEM, in such an order.
func (s *State) ServicePublic() []byte {
	return inOrder(s.Rotations[ServiceAccount], s.Keys.ServicePublic)
}

// inOrder has the former one first.
func inOrder(r Rotation, signs []byte) []byte {
	if r.Move == Issue {
		return slices.Concat(r.Other, signs)
	}
	return slices.Concat(signs, r.Other)
}

// Rotate begins to replace an authority by another, or the key of service accounts; nothing is signed with it yet. An
// authority that has ended is trusted by nobody, so that the next one signs at once.
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

// Issue has the next one sign, which all machines trust by now.
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

// IssuedEverywhere notes that all machines have had everything issued anew.
func (s *State) IssuedEverywhere(name string, now time.Time) {
	r := s.Rotations[name]
	r.Issued = now
	s.Rotations = clone(s.Rotations)
	s.Rotations[name] = r
}

// Drop has nobody trust the former one any more.
func (s *State) Drop(name string) {
	s.Rotations = clone(s.Rotations)
	delete(s.Rotations, name)
}

// Over reports whether the former one is to be dropped.
func (r Rotation) Over(now time.Time) bool {
	return !r.Issued.IsZero() && (r.Finish || r.Keep >= 0 && !now.Before(r.Issued.Add(r.Keep)))
}

// Ours reports whether same says so of an authority of this cluster, of one that comes or goes, too.
func (s *State) Ours(name string, same func(pem []byte) bool) bool {
	return same(s.CAs[name]) || len(s.Rotations[name].Other) > 0 && same(s.Rotations[name].Other)
}

// clone is for maps that are shared with what was read before: a reader may be at them.
func clone[V any](m map[string]V) map[string]V {
	c := maps.Clone(m)
	if c == nil {
		c = map[string]V{}
	}
	return c
}
