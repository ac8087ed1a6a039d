package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"clusterctl/provision/host"
)

// Two operators with copies of one configuration each hold the lock of their own directory, so the machine itself must
// record which run may change it. Each run that changes the machine records its name there. It is refused if another
// run has changed the machine since it was checked, because those changes were not in its plan. Records do not expire,
// so no clock is involved. A run that died blocks nothing: later runs read its record before they plan.

// Turn identifies a run that changes a machine, and the last run that it saw there.
type Turn struct {
	Run      string `json:"run"`           // this run's unique name
	Operator string `json:"who,omitempty"` // shown to users
	// the run that had changed the machine last; empty if there was none since it booted
	LastSeen string `json:"saw,omitempty"`
	// Boot is the machine's boot ID when the run looked at it first, as host.Boot returns it. Records that last until
	// the next boot are missing after a reboot, and also after another run cleaned the machine. Boot distinguishes the
	// two.
	Boot string `json:"boot,omitempty"`
}

// runRecordPath is the file with the record of the last run. It does not survive a reboot, which is no other run.
const runRecordPath = host.RunDir + "/last-run.json"

type runRecord struct {
	Run      string    `json:"run"`
	Operator string    `json:"who,omitempty"`
	At       time.Time `json:"at"`
}

func readRunRecord(h host.Files) (r runRecord, err error) {
	text, err := h.ReadFile(runRecordPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case err != nil:
		return r, fmt.Errorf("read which run has changed this machine: %w", err)
	}
	if json.Unmarshal(text, &r) != nil {
		return runRecord{Run: "unreadable"}, nil // counts as another, unknown run
	}
	return r, nil
}

// turnTimeout is how long a run waits for another run's steps.
const turnTimeout = 2 * time.Minute

// startTurn starts a run's turn, which lasts until end is called. A nil turn belongs to a request that does not affect
// other runs' plans.
func startTurn(ctx context.Context, h host.Host, t *Turn) (end func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	waits, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	end, err = h.Lock(waits)
	if err != nil {
		if r, _ := readRunRecord(h); waits.Err() != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("another run%s has been changing this machine for %s: nothing was done here by "+
				"this one. Apply again when that has ended", r.description(), turnTimeout)
		}
		return nil, fmt.Errorf("wait for this machine's turn: %w", err)
	}
	if err := claimTurn(h, t); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func claimTurn(h host.Files, t *Turn) error {
	last, err := readRunRecord(h)
	switch {
	case err != nil:
		return err
	case last.Run == t.Run:
		return nil
	case last.Run == "" && t.LastSeen != "" && t.Boot != "" && host.CurrentBootID(h) == t.Boot:
		return errors.New("another run has cleaned this machine since this run planned: this run makes no changes " +
			"here. When the other run has ended, plan again")
	case last.Run != "" && last.Run != t.LastSeen:
		return fmt.Errorf("another run%s has changed this machine since this one looked at it, last begun here at %s: "+
			"nothing more is done here by this one. When that has ended, plan again: what it did was not in this plan",
			last.description(), last.At.UTC().Format(time.DateTime+" MST"))
	}
	text, err := json.Marshal(runRecord{Run: t.Run, Operator: t.Operator, At: time.Now()})
	if err != nil {
		return err
	}
	if err := h.WriteFile(runRecordPath, bytes.NewReader(text), 0o600, 0, 0); err != nil {
		return fmt.Errorf("write down which run changes this machine: %w", err)
	}
	return nil
}

func (r runRecord) description() string {
	if r.Operator == "" {
		return ""
	}
	return ", of " + r.Operator + ","
}
