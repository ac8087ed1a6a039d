package certificate

import (
	"errors"
	"slices"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// A removed machine has the cluster's keys. A client with a front-proxy key can impersonate any user to the API
// servers.
// Proves S12.
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
	revoked := Revocable(issued, now)
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

// TestCertificatesWithFormerNamesAreRevoked replaces a certificate with one with another common name, as an update from
// common users to users for each machine does.
// Proves S12.
func TestCertificatesWithFormerNamesAreRevoked(t *testing.T) {
	now := time.Now()
	ca, err := certs.NewCA(certs.ClusterCA, 0, now)
	if err != nil {
		t.Fatal(err)
	}
	m := &session.Machine{Machine: config.Machine{Address: "machine.a", Name: "a"}, Agent: struct{ session.Agent }{}}
	s := &state.State{Machines: map[string]state.Machine{"machine.a": {}}}
	machines := []*session.Machine{m}
	issue := func(label string, r certs.Request) string {
		t.Helper()
		pair, err := certs.Issue(ca, r, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := RecordIssued(s, m.Address, label, certs.ClusterCA, pair); err != nil {
			t.Fatal(err)
		}
		return s.Machines["machine.a"].Issued[label].Serial
	}
	former := issue("dns.conf", certs.Daemon("kube-dns"))
	outgrown := func(when string, want bool) {
		t.Helper()
		if HasReplacedFormerUsers(s) != want {
			t.Errorf("%s: outgrown is %v, want %v", when, !want, want)
		}
	}
	outgrown("with a daemon of a former release", false)
	issue("proxy.conf", certs.Daemon("kube-proxy"))
	issue("dns.conf", certs.Replica("kube-dns", "a"))
	issue("proxy.conf", certs.Daemon("kube-proxy")) // renewed
	outgrown("when the last one is another", true)
	back := s.Machines["machine.a"]
	back.Failed = &state.FailedUpdate{}
	s.Machines["machine.b"] = back
	outgrown("with a machine that was rolled back", false)
	delete(s.Machines, "machine.b")
	s.Machines["machine.b"] = state.Machine{Issued: map[string]certs.Revoked{
		"ingress.conf": {Name: "system:kube-ingress"},
	}}
	outgrown("with a daemon of a former release on another machine", false)
	delete(s.Machines, "machine.b")
	if len(s.Revoked) > 0 {
		t.Errorf("revoked before the machine uses the new certificates: %v", s.Revoked)
	}
	if revoked := Revocable(s.Machines["machine.a"].Issued, now); len(revoked) != 3 {
		t.Errorf("removing the machine now would revoke %v, want three certificates", revoked)
	}
	m.LeftOutReason = errors.New("not reached")
	if RevokeSuperseded(s, machines, now) {
		t.Error("the certificate of a machine that was not reached is revoked")
	}
	m.LeftOutReason = nil
	if !RevokeSuperseded(s, machines, now) || len(s.Revoked) != 1 || s.Revoked[0].Serial != former {
		t.Errorf("revoked %v, want %s", s.Revoked, former)
	}
	if RevokeSuperseded(s, machines, now) || len(s.Machines["machine.a"].Issued) != 2 {
		t.Errorf("issued after retire: %v, want two certificates", s.Machines["machine.a"].Issued)
	}
	outgrown("afterwards", false)
}
