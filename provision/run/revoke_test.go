package run

import (
	"errors"
	"slices"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
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
	p := &Prepared{State: s, engine: &Engine{}}
	revoked := p.certificatesToRevoke(issued)
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
	m := &machine{Machine: config.Machine{Address: "machine.a", Name: "a"}, agent: struct{ Agent }{}}
	p := &Prepared{engine: &Engine{}, machines: []*machine{m},
		State: &state.State{Machines: map[string]state.Machine{"machine.a": {}}}}
	issue := func(label string, r certs.Request) string {
		t.Helper()
		pair, err := certs.Issue(ca, r, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.recordIssued(m, label, certs.ClusterCA, pair); err != nil {
			t.Fatal(err)
		}
		return p.State.Machines["machine.a"].Issued[label].Serial
	}
	former := issue("dns.conf", certs.Daemon("kube-dns"))
	outgrown := func(when string, want bool) {
		t.Helper()
		if p.hasReplacedFormerUsers() != want {
			t.Errorf("%s: outgrown is %v, want %v", when, !want, want)
		}
	}
	outgrown("with a daemon of a former release", false)
	issue("proxy.conf", certs.Daemon("kube-proxy"))
	issue("dns.conf", certs.Replica("kube-dns", "a"))
	issue("proxy.conf", certs.Daemon("kube-proxy")) // renewed
	outgrown("when the last one is another", true)
	back := p.State.Machines["machine.a"]
	back.Failed = &state.FailedUpdate{}
	p.State.Machines["machine.b"] = back
	outgrown("with a machine that was rolled back", false)
	delete(p.State.Machines, "machine.b")
	p.State.Machines["machine.b"] = state.Machine{Issued: map[string]certs.Revoked{
		"ingress.conf": {Name: "system:kube-ingress"},
	}}
	outgrown("with a daemon of a former release on another machine", false)
	delete(p.State.Machines, "machine.b")
	if len(p.State.Revoked) > 0 {
		t.Errorf("revoked before the machine uses the new certificates: %v", p.State.Revoked)
	}
	if revoked := p.certificatesToRevoke(p.State.Machines["machine.a"].Issued); len(revoked) != 3 {
		t.Errorf("removing the machine now would revoke %v, want three certificates", revoked)
	}
	m.leftOutReason = errors.New("not reached")
	if p.revokeSuperseded() {
		t.Error("the certificate of a machine that was not reached is revoked")
	}
	m.leftOutReason = nil
	if !p.revokeSuperseded() || len(p.State.Revoked) != 1 || p.State.Revoked[0].Serial != former {
		t.Errorf("revoked %v, want %s", p.State.Revoked, former)
	}
	if p.revokeSuperseded() || len(p.State.Machines["machine.a"].Issued) != 2 {
		t.Errorf("issued after retire: %v, want two certificates", p.State.Machines["machine.a"].Issued)
	}
	outgrown("afterwards", false)
}
