// Package plan defines the plan of a run: for each machine the changes that its steps found, and for each object the
// fields that differ. Plans can be printed, encoded and saved. The package does not inspect machines: package role
// defines the wanted state, the machines report the actual one, and package run brings both together.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"clusterctl/provision/step"
)

// Actions on machines and objects.
const (
	Create = "create"
	Change = "change"
	Remove = "remove"
	// Replace means to remove and create again.
	Replace = "replace"
	// Move means that a machine's block was renamed. Nothing changes on the machine.
	Move = "move"
	// Forget means that something stays unchanged and is no longer managed.
	Forget = "forget"
	// Refused means that the API refuses an object. The note says why.
	Refused = "refused"
	None    = ""
	// Unreachable means that a machine was not reached, so that its state is unknown.
	Unreachable = "unreachable"
	// Skipped means that a machine was not reached and is left out of the run. Its state is unknown.
	Skipped = "skipped"
)

// Plan holds everything that a run would do.
type Plan struct {
	Cluster      string     `json:"cluster"`
	Machines     []Machine  `json:"machines"`
	Objects      []Object   `json:"objects"`
	Rotations    []Rotation `json:"rotations,omitempty"`
	Stages       []Stage    `json:"stages,omitempty"`       // in the order of Apply
	Etcd         string     `json:"etcd,omitempty"`         // the number of members, and how many may be lost
	Certificates string     `json:"certificates,omitempty"` // when the next certificate expires
	// the actions before which a snapshot of the store is taken
	Snapshot       string   `json:"snapshot,omitempty"`
	Warnings       []string `json:"warnings,omitempty"`
	WaitingChanges []string `json:"waits,omitempty"`  // declared changes that wait for their maintenance window
	IsPartial      bool     `json:"partly,omitempty"` // a selection excludes something
	// IsPending means that the API does not answer yet, so that objects are compared after the machines.
	IsPending      bool `json:"pending,omitempty"`
	AwaitedObjects int  `json:"awaited,omitempty"` // number of objects of a cluster that does not exist yet
	// Moves describes the replacements of authorities and keys that apply made. Moved lists the addresses of the
	// machines that it changed for them.
	Moves []string `json:"-"`
	Moved []string `json:"-"`
	// ProgramSentTo names the machines to which this program was sent for planning; empty means none.
	ProgramSentTo string `json:"brought,omitempty"`
	// CompareError is why the objects could not be compared. Their changes are unknown then.
	CompareError string `json:"unanswered,omitempty"`
}

// Machine describes what would be done to a machine.
type Machine struct {
	Address string `json:"address"`
	// From is the block's address when the machine was applied, if that was another one.
	From    string        `json:"from,omitempty"`
	Action  string        `json:"action,omitempty"`
	Note    string        `json:"note,omitempty"`
	Loss    string        `json:"loss,omitempty"` // data that is permanently lost
	Changes []step.Change `json:"changes,omitempty"`
	// FromRelease and ToRelease are the releases of an update. LastFailure describes the failure of the previous
	// attempt.
	FromRelease string `json:"fromRelease,omitempty"`
	ToRelease   string `json:"toRelease,omitempty"`
	LastFailure string `json:"lastTime,omitempty"`
}

// Object describes what would be done to an API object.
type Object struct {
	Address string   `json:"address"` // such as workload.web or object.v1.ConfigMap.motd
	Kind    string   `json:"kind"`
	Name    string   `json:"name"` // namespace/name
	Action  string   `json:"action,omitempty"`
	Note    string   `json:"note,omitempty"`
	Loss    string   `json:"loss,omitempty"` // data that is permanently lost
	Diff    []string `json:"diff,omitempty"`
}

// Rotation is the replacement of an authority or a key.
type Rotation struct {
	Name   string `json:"name"`
	Action string `json:"action,omitempty"` // Change if this run makes a move
	Note   string `json:"note"`
}

// WithAction returns the changes that have an action.
func WithAction(changes []step.Change) (list []step.Change) {
	for _, c := range changes {
		if c.Action != "" {
			list = append(list, c)
		}
	}
	return list
}

// Unreached returns the addresses of the machines that are unreachable.
func (p *Plan) Unreached() (list []string) {
	for _, m := range p.Machines {
		if m.Action == Unreachable {
			list = append(list, m.Address)
		}
	}
	return list
}

// IsEmpty reports whether the plan does nothing.
func (p *Plan) IsEmpty() bool {
	for _, m := range p.Machines {
		if m.Action != None && m.Action != Skipped {
			return false
		}
	}
	for _, o := range p.Objects {
		if o.Action != None {
			return false
		}
	}
	for _, r := range p.Rotations {
		if r.Action != None {
			return false
		}
	}
	return true
}

// Count counts machines and objects by action.
func (p *Plan) Count(action string) (machines, objects int) {
	for _, m := range p.Machines {
		if m.Action == action {
			machines++
		}
	}
	for _, o := range p.Objects {
		if o.Action == action {
			objects++
		}
	}
	return machines, objects
}

// Fingerprint returns the same value for plans that do the same.
func (p *Plan) Fingerprint() string {
	copied := *p
	// These fields change with time and do not depend on what the plan does.
	copied.Certificates, copied.Warnings, copied.WaitingChanges, copied.CompareError, copied.ProgramSentTo = "", nil,
		nil, "", ""
	copied.Machines = slices.DeleteFunc(slices.Clone(p.Machines), func(m Machine) bool { return m.Action == Skipped })
	text, err := json.Marshal(copied)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
