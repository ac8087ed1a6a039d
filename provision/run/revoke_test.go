package run

import (
	"slices"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/provision/state"
)

// S12: a machine that is removed has keys of the cluster's. Who has a front proxy's key is whoever he says to the API servers.
func TestAllCertificatesOfARemovedMachineAreRevoked(t *testing.T) {
	now := time.Now()
	s := &state.State{CAs: map[string][]byte{}}
	s.Keys.CAs = map[string][]byte{}
	issued := map[string]certs.Revoked{}
	names := []string{certs.ClusterCA, certs.EtcdCA, certs.FrontProxyCA}
	for i, name := range names {
		ca, err := certs.NewCA(name, 0, now)
		if err != nil {
			t.Fatal(err)
		}
		s.CAs[name], s.Keys.CAs[name] = ca.Cert, ca.Key
		issued[name] = certs.Revoked{CA: name, Serial: string(rune('a' + i)), Until: now.Add(time.Hour)}
	}
	p := &Prepared{State: s, engine: &Engine{}}
	revoked := p.revoked(issued)
	s.Revoke(revoked...)
	lists, err := s.RevocationLists(now)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if !slices.ContainsFunc(revoked, func(r certs.Revoked) bool { return r.CA == name }) {
			t.Errorf("that of %s is not revoked", name)
		}
		in, err := certs.ParseRevocations(certs.EncodeRevocations(lists[name]), s.CAs[name])
		if err != nil || !in[string(rune('a'+i))] {
			t.Errorf("the list of %s: %v, %v", name, in, err)
		}
	}
}
