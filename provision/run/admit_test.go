package run_test

import (
	"maps"
	"testing"
)

// Before machines get certificates for new users in place of the users of former releases, the new users get their
// rights. Other runs give no rights.
func TestNewUsersGetTheirRightsBeforeTheirMachineIsUpdated(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	if w.clusterAPI.admitted > 0 {
		t.Error("a new cluster has former users")
	}
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
	w.engine.Config.Machines[1].Kubelet.Choose("max_pods", 42)
	w.mustApply()
	if w.clusterAPI.admitted != 1 {
		t.Errorf("they were let in %d times", w.clusterAPI.admitted)
	}
}
