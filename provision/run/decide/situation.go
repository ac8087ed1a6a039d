// Package decide makes the decisions of a run. A decision is a value that follows from the configuration, the state and
// what the machines report. Nothing here connects to a machine, writes a file or changes the state.
package decide

import (
	"slices"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Situation is what the decisions of a run are made from.
type Situation struct {
	Config   *config.Cluster
	State    *state.State
	Options  Options
	Machines []*session.Machine
	Release  host.Release     // the release of this program
	Now      func() time.Time // for example time.Now
	StateDir string           // where the state is stored, for messages

	IsNewCluster    bool              // there is no cluster yet
	FormerAddresses map[string]string // former addresses of blocks, by the present addresses of the same machines
}

// Decision is what a run has decided to do.
type Decision struct {
	Plan *plan.Plan
	// State is the state with which the run begins: blocks are renamed, and it has the keys and members that will be
	// needed. The state on disk does not change before the run does.
	State *state.State
	// Secrets are the sensitive values of this configuration and of those that were applied before.
	Secrets []string

	HasRenames      bool                 // moved blocks have renamed things in the state
	Refused         session.RefusedError // objects that the API refuses
	VanishedObjects []state.Object       // objects that an interrupted run has removed, still listed in the state
	SkippedMachines []Skipped            // machines that were not reached and are left out
}

// Skipped is a machine that was not reached and is left out.
type Skipped struct {
	Machine *session.Machine
	Reason  error
}

// HasStarted reports whether a machine of the control plane has joined in an earlier run. Until then, all members of
// the new store must start at once.
func HasStarted(s *state.State) bool {
	for _, m := range s.Machines {
		if m.HasJoined && m.Machine.HasRole(config.RoleControlPlane) {
			return true
		}
	}
	return false
}

// WithAction returns the machines that have one of these actions and are not left out.
func (p *Situation) WithAction(actions ...string) []*session.Machine {
	return session.Filter(p.Machines, func(m *session.Machine) bool {
		return slices.Contains(actions, m.Action) && m.Action != plan.None && m.LeftOutReason == nil
	})
}
