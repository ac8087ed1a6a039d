package run_test

import (
	"errors"
	"strings"
	"testing"

	"clusterctl/provision/host"
)

// A misspelt address is an error. Otherwise it would select no machine, and the status would be well.
func TestTheStatusOfAnUnknownAddressIsAnError(t *testing.T) {
	w := newWorld(t, controlMachine)
	w.mustApply()
	w.engine.Targets = []string{"machine.other"}
	if list, err := w.engine.Status(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "-target machine.other: there is no such machine") {
		t.Errorf("the status of a machine that is not declared is %v, %v", list, err)
	}
}

// TestMachinesThatReachNoAPIServerAreReported disconnects a node from the API, while the operator still reaches the
// node.
// Proves P07.
func TestMachinesThatReachNoAPIServerAreReported(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	timeout := errors.New("connect: connection timed out")
	w.hosts["machine.a"].AnswerErrors = map[string]error{"https://10.0.0.1:6443/livez": timeout}
	o, err := w.engine.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range o.Machines {
		if want := s.Address == "machine.a"; strings.Contains(s.NoAPI, "timed out") != want {
			t.Errorf("%s: NoAPI is %q, want a timeout: %v", s.Address, s.NoAPI, want)
		}
	}
	w.hosts["machine.a"].AnswerErrors = map[string]error{"https://10.0.0.1:6443/livez": host.StatusError(401)}
	if o, err = w.engine.Status(t.Context()); err != nil || o.Machines[0].NoAPI+o.Machines[1].NoAPI != "" {
		t.Errorf("a server that answers counts as unreachable: %+v, %v", o.Machines, err)
	}
}
