package certificate

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"clusterctl/certs"
	"clusterctl/provision/state"
)

// RevocationLists caches the signed revocation lists. They are the same for all machines until a certificate is revoked
// or an authority changes. It is not safe for concurrent use.
type RevocationLists struct {
	revoked []certs.Revoked
	cas     map[string][]byte
	at      time.Time
	lists   map[string][]byte
}

// listLifetime is how long revocation lists are reused. Expired certificates are left out of newer ones.
const listLifetime = time.Minute

// Current returns the revocation lists of s at a time.
func (r *RevocationLists) Current(s *state.State, now time.Time) (map[string][]byte, error) {
	if r.lists != nil && now.Sub(r.at) < listLifetime && slices.Equal(r.revoked, s.Revoked) &&
		maps.EqualFunc(r.cas, s.CAs, bytes.Equal) {
		return r.lists, nil
	}
	lists, err := s.RevocationLists(now)
	if err != nil {
		return nil, err
	}
	*r = RevocationLists{revoked: slices.Clone(s.Revoked), cas: maps.Clone(s.CAs), at: now, lists: lists}
	return lists, nil
}
