package run_test

import (
	"maps"
	"slices"
	"testing"

	"clusterctl/certs"
)

// If a run has replaced certificates with certificates for other names and is interrupted before it revokes the former
// ones, the next run revokes them.
func TestCertificatesOfFormerUsersAreRevokedByTheNextRun(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	s := w.state()
	m := s.Machines[machineA.Address]
	m.Issued = maps.Clone(m.Issued)
	for label, revoked := range m.Issued {
		if revoked.Name == "system:kube-network:a" {
			revoked.Name, revoked.Serial = "system:kube-network", "f00d"
			m.Issued[label+" (superseded)"] = revoked
		}
	}
	s.Machines[machineA.Address] = m
	if err := w.engine.Store.Write(s); err != nil {
		t.Fatal(err)
	}
	if p := w.mustApply(); p.IsEmpty() || plannedMachine(p, machineA.Address).Changes[0].Note != "revoke" {
		t.Errorf("planned is %+v", p.Machines)
	}
	s = w.state()
	if w.clusterAPI.dropped != 1 ||
		!slices.ContainsFunc(s.Revoked, func(r certs.Revoked) bool { return r.Serial == "f00d" }) {
		t.Errorf("rights were removed %d times, revoked are %v", w.clusterAPI.dropped, s.Revoked)
	}
	if p := w.mustApply(); !p.IsEmpty() {
		t.Errorf("not as declared afterwards: %+v", p.Machines)
	}
}

// The rights of former users are deleted with the last machine that has such a certificate, after the others'
// certificates were revoked.
func TestRightsOfFormerUsersEndWithTheirLastMachine(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	s := w.state()
	m := s.Machines[machineA.Address]
	m.Issued = maps.Clone(m.Issued)
	for label, revoked := range m.Issued {
		if revoked.Name == "system:kube-network:a" {
			revoked.Name = "system:kube-network"
			m.Issued[label] = revoked
		}
	}
	s.Machines[machineA.Address] = m
	if err := w.engine.Store.Write(s); err != nil {
		t.Fatal(err)
	}
	w.declare(controlMachine)
	w.mustApply()
	if w.clusterAPI.dropped != 1 {
		t.Errorf("rights were removed %d times", w.clusterAPI.dropped)
	}
}
