package plan

import (
	"fmt"
	"time"
)

// Saved is a saved plan, with the inputs that it was made from.
type Saved struct {
	Format      int       `json:"format"`
	Time        time.Time `json:"time,omitzero"` // result of timestamp()
	Path        string    `json:"path"`          // of the configuration
	Vars        []string  `json:"vars"`
	VarFiles    []string  `json:"varFiles"`
	Destroy     bool      `json:"destroy,omitempty"`
	Targets     []string  `json:"targets,omitempty"`
	Excludes    []string  `json:"excludes,omitempty"`
	Replaces    []string  `json:"replaces,omitempty"`
	Refresh     bool      `json:"refresh,omitempty"` // refresh only the state
	Losses      []string  `json:"losses,omitempty"`
	Downgrade   string    `json:"downgrade,omitempty"`
	Serial      int64     `json:"serial"` // serial number of the state
	Fingerprint string    `json:"fingerprint"`
	Plan        *Plan     `json:"plan"`
}

// SavedFormat is the format of saved plans that this release reads and writes.
const SavedFormat = 1

// Check returns an error if a saved plan must not be applied, because the state or the present plan differs.
func (s *Saved) Check(serial int64, now *Plan) error {
	switch {
	case s.Format != SavedFormat:
		return fmt.Errorf("the plan was saved in format %d, this release knows format %d: plan again", s.Format,
			SavedFormat)
	case s.Serial != serial:
		return fmt.Errorf("another run has changed the cluster since the plan was saved (state %d, now %d): plan again",
			s.Serial, serial)
	case s.Fingerprint != now.Fingerprint():
		return fmt.Errorf("the machines or the configuration have changed since the plan was saved: plan again")
	}
	return nil
}
