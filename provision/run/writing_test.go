package run_test

import (
	"fmt"
	"net/netip"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/tests/tools/amount"
)

// Writing the state takes time proportional to its number of machines, so many machines are recorded in one write. One
// write for each machine, or for each group of parallel machines, would make the total time grow with the square of the
// machines.
func TestChangesOfManyMachinesAreWrittenTogether(t *testing.T) {
	machines, maximum := amount.Scaled(400, 100), int64(30)
	declared := []config.Machine{controlMachine}
	for i := range machines {
		declared = append(declared, machine(fmt.Sprintf("n%d", i),
			netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String(), config.RoleNode))
	}
	w := newWorld(t, declared...)
	w.mustApply()
	s, err := w.engine.Store.Read()
	if err != nil {
		t.Fatal(err)
	}
	if s.Serial > maximum {
		t.Errorf("the state was written %d times for %d machines, at most %d are due", s.Serial, machines, maximum)
	}
	for address, m := range s.Machines {
		if !m.HasJoined || len(m.Issued) == 0 {
			t.Errorf("%s is not written down as joined, with its certificates", address)
		}
	}
}

// With few machines, each is recorded immediately after its change.
func TestCompletedMachinesAreRecordedWhenAnotherFails(t *testing.T) {
	w := newWorld(t, controlMachine, machineA, machineB)
	w.hosts[machineB.Address].BeforeChange = func(op string) error {
		if op == "write /var/lib/kubelet/config.yaml" {
			return fmt.Errorf("no space left on device")
		}
		return nil
	}
	if _, err := w.apply(); err == nil {
		t.Fatal("an apply with a machine that fails succeeds")
	}
	s, err := w.engine.Store.Read()
	if err != nil {
		t.Fatal(err)
	}
	if a, b := s.Machines[machineA.Address], s.Machines[machineB.Address]; !a.HasJoined || b.HasJoined {
		t.Errorf("a joined: %v, b joined: %v", a.HasJoined, b.HasJoined)
	}
}
