package session

import (
	"fmt"
	"slices"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/host"
	"clusterctl/provision/step"
)

// Machine is one machine during a run. Only one goroutine at a time works on a machine.
type Machine struct {
	config.Machine
	Agent           Agent // nil until the machine is reached
	Facts           host.Facts
	FactsReadAt     time.Time // when the facts were read, by the operator's clock
	Steps           []step.Step
	Changes         []step.Change // what the check of each step has found
	Action          string
	UnreachedReason error // why it was not reached, if it is to be removed or only a plan is wanted
	CreatesNode     bool  // the machine's node is created by this run
	HasJoinedNow    bool  // the machine has joined in this run; guarded by the ledger
	HasCertificates bool  // the steps have their certificates
	SentBytes       int64 // bytes of this program that were sent to the machine for planning
	RepairError     error // why the machine could not be repaired
	LeftOutReason   error // why the machine is left out of later phases

	turn *agent.Turn // this run's turn, with the last run on the machine as seen at the first connection
}

// Wrap adds the machine's address, and where it is declared, to an error.
func (m *Machine) Wrap(err error) error {
	return fmt.Errorf("%s (%s:%d): %w", m.Address, m.Source.File, m.Source.Line, err)
}

// IsConnected reports whether the machine was reached and answers.
func (m *Machine) IsConnected() bool { return m.Agent != nil && m.UnreachedReason == nil }

// HasNoCluster reports whether a machine has nothing of a cluster on it.
func (m *Machine) HasNoCluster() bool { return m.Agent != nil && m.Facts.ClusterCA == "" }

// HasKubelet reports whether the machine still runs a kubelet. If an earlier run has removed it after draining, the
// remaining pods are deleted with the Node object.
func (m *Machine) HasKubelet() bool {
	return slices.ContainsFunc(m.Changes,
		func(c step.Change) bool { return c.Kind == "unit" && c.Name == "kubelet.service" })
}

// WithSteps returns a copy of a machine with some of its steps.
func (m *Machine) WithSteps(which []int) *Machine {
	part := *m
	part.Steps, part.Changes = nil, nil
	for _, i := range which {
		part.Steps, part.Changes = append(part.Steps, m.Steps[i]), append(part.Changes, m.Changes[i])
	}
	return &part
}

// Disconnect closes the connection to a machine that is not used further because of reason.
func (m *Machine) Disconnect(reason error) {
	_ = m.Agent.Close()
	m.Agent, m.UnreachedReason = nil, reason
}

// Filter returns the machines for which matches returns true.
func Filter(list []*Machine, matches func(*Machine) bool) (found []*Machine) {
	for _, m := range list {
		if matches(m) {
			found = append(found, m)
		}
	}
	return found
}
