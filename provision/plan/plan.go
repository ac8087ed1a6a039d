// Package plan is what a run would do, as a value that people read, programs read, and
// that can be saved: per machine the changes that its steps found, per object the
// fields that differ. It decides nothing about machines itself: provision/role says
// what should be, the machines' answers say what is, provision/run brings both here.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"clusterctl/provision/step"
)

// Actions on machines and objects.
const (
	Create = "create"
	Change = "change"
	Remove = "remove"
	// Replace is to remove, and to create again.
	Replace = "replace"
	// Move is that the block of a machine is called otherwise: nothing changes on it.
	Move = "move"
	// Forget is that something stays as it is and is not looked after any more.
	Forget = "forget"
	// Refused is that the API does not take an object: the note says why.
	Refused = "refused"
	None    = ""
	// Unreachable is that nothing is known of a machine: neither that it is as declared, nor that it is gone.
	Unreachable = "unreachable"
	// Skipped is that a machine is not reached and left out of the run: nothing is known of it either.
	Skipped = "skipped"
)

// Plan is everything that would be done.
type Plan struct {
	Cluster      string     `json:"cluster"`
	Machines     []Machine  `json:"machines"`
	Objects      []Object   `json:"objects"`
	Rotations    []Rotation `json:"rotations,omitempty"`
	Stages       []Stage    `json:"stages,omitempty"`       // the order in which apply goes
	Etcd         string     `json:"etcd,omitempty"`         // how many members, and what that survives
	Certificates string     `json:"certificates,omitempty"` // when the next one ends
	Snapshot     string     `json:"snapshot,omitempty"`     // before what one of the store is taken
	Warnings     []string   `json:"warnings,omitempty"`
	Waits        []string   `json:"waits,omitempty"`  // what is declared and waits for its time
	Partly       bool       `json:"partly,omitempty"` // a selection left something out
	// the API is not there yet: objects are compared after the machines
	Pending bool `json:"pending,omitempty"`
	Awaited int  `json:"awaited,omitempty"` // objects that a cluster gets which is not there yet
	// Moves describe the replacements of authorities and keys that apply made. Moved are the addresses of the machines
	// that it changed for them.
	Moves []string `json:"-"`
	Moved []string `json:"-"`
	// Brought says which machines this program was sent to in order to plan; empty means none.
	Brought string `json:"brought,omitempty"`
	// Unanswered is why objects could not be compared with what is there: it is not known whether any changes.
	Unanswered string `json:"unanswered,omitempty"`
}

// Machine is what would be done to a machine.
type Machine struct {
	Address string `json:"address"`
	// the address of its block when it was applied, where that was another
	From    string        `json:"from,omitempty"`
	Action  string        `json:"action,omitempty"`
	Note    string        `json:"note,omitempty"`
	Loss    string        `json:"loss,omitempty"` // what data goes with it, for good
	Changes []step.Change `json:"changes,omitempty"`
	// FromRelease and ToRelease are those of an update, and LastTime is how the last one failed.
	FromRelease string `json:"fromRelease,omitempty"`
	ToRelease   string `json:"toRelease,omitempty"`
	LastTime    string `json:"lastTime,omitempty"`
}

// Object is what would be done to an API object.
type Object struct {
	Address string   `json:"address"` // workload.web, object.v1.ConfigMap.motd
	Kind    string   `json:"kind"`
	Name    string   `json:"name"` // namespace/name
	Action  string   `json:"action,omitempty"`
	Note    string   `json:"note,omitempty"`
	Loss    string   `json:"loss,omitempty"` // what data goes with it, for good
	Diff    []string `json:"diff,omitempty"`
}

// Rotation is an authority, or a key, that is being replaced.
type Rotation struct {
	Name   string `json:"name"`
	Action string `json:"action,omitempty"` // Change where this run makes a move
	Note   string `json:"note"`
}

// Differing leaves out the changes of steps that find nothing to do.
func Differing(changes []step.Change) (list []step.Change) {
	for _, c := range changes {
		if c.Action != "" {
			list = append(list, c)
		}
	}
	return list
}

// Unreached returns the machines that could not be asked.
func (p *Plan) Unreached() (list []string) {
	for _, m := range p.Machines {
		if m.Action == Unreachable {
			list = append(list, m.Address)
		}
	}
	return list
}

// Empty reports whether nothing would be done.
func (p *Plan) Empty() bool {
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

// Fingerprint is the same for plans that would do the same.
func (p *Plan) Fingerprint() string {
	copied := *p
	// These fields change with time and do not depend on what the plan does.
	copied.Certificates, copied.Warnings, copied.Waits, copied.Unanswered, copied.Brought = "", nil, nil, "", ""
	copied.Machines = slices.DeleteFunc(slices.Clone(p.Machines), func(m Machine) bool { return m.Action == Skipped })
	text, err := json.Marshal(copied)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Saved is a plan in a file: what was shown, and what it was made from.
type Saved struct {
	Format      int       `json:"format"`
	Time        time.Time `json:"time,omitzero"` // what timestamp() gave
	Path        string    `json:"path"`          // of the configuration
	Vars        []string  `json:"vars"`
	VarFiles    []string  `json:"varFiles"`
	Destroy     bool      `json:"destroy,omitempty"`
	Targets     []string  `json:"targets,omitempty"`
	Excludes    []string  `json:"excludes,omitempty"`
	Replaces    []string  `json:"replaces,omitempty"`
	Refresh     bool      `json:"refresh,omitempty"` // of the state alone
	Losses      []string  `json:"losses,omitempty"`
	Downgrade   string    `json:"downgrade,omitempty"`
	Serial      int64     `json:"serial"` // of the state
	Fingerprint string    `json:"fingerprint"`
	Plan        *Plan     `json:"plan"`
}

// SavedFormat is the format of saved plans that this release reads and writes.
const SavedFormat = 1

// Check says why a saved plan may not be applied to the world as it is now.
func (s *Saved) Check(serial int64, now *Plan) error {
	switch {
	case s.Format != SavedFormat:
		return fmt.Errorf(
			"the plan was saved in format %d, this release knows format %d: plan again",
			s.Format,
			SavedFormat,
		)
	case s.Serial != serial:
		return fmt.Errorf(
			"another run has changed the cluster since the plan was saved (state %d, now %d): plan again",
			s.Serial,
			serial,
		)
	case s.Fingerprint != now.Fingerprint():
		return fmt.Errorf(
			"the world has moved on since the plan was saved: what would be done now is something else. Plan again",
		)
	}
	return nil
}
