package main

import (
	"errors"
	"strings"
	"time"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// runJournal records a run's events. It names changed files, but never records their content.
type runJournal struct {
	target  *state.Journal // nil before the run changes anything
	secrets []string
}

// begin opens the journal and records the summary of the plan.
func (j *runJournal) begin(store state.Store, p *plan.Plan) error {
	now := time.Now()
	to, err := state.OpenJournal(store.Dir, now)
	if err != nil {
		return err
	}
	j.target = to
	j.target.Write(state.Entry{Time: now, Outcome: state.Begun, Note: p.Summary()})
	return nil
}

// describePrevious describes the previous run if it did not complete, or returns "".
func (j *runJournal) describePrevious(store state.Store) (string, error) {
	last, err := state.LastUnfinished(store.Dir)
	if err != nil || last == nil {
		return "", err
	}
	return last.String(time.Now()), nil
}

// close records how the run ended, and closes the journal.
func (j *runJournal) close(err error) error {
	e := state.Entry{Time: time.Now(), Outcome: state.Done}
	switch {
	case errors.Is(err, session.ErrInterrupted):
		e.Outcome = state.Interrupted
	case err != nil:
		e.Outcome, e.Note = state.Failed, maskSecrets(err.Error(), j.secrets)
	}
	j.target.Write(e)
	return j.target.Close()
}

var stepOutcomes = map[string]string{
	step.Create: "created", step.Update: "changed", step.Delete: "removed",
	plan.Create: "created", plan.Change: "changed", plan.Remove: "removed", plan.Replace: "replaced",
	plan.Refused: state.Failed, plan.None: "waiting",
}

func (j *runJournal) record(e report.Event) {
	if j.target == nil || e.Kind == report.Sending {
		return
	}
	out := state.Entry{Time: e.Time, Machine: e.Machine, Outcome: e.Kind, Note: maskSecrets(e.Message, j.secrets)}
	switch e.Kind {
	case report.Begin:
		out.Outcome = state.Begun
	case report.Send:
		out.Outcome = "sent"
	case report.Step:
		out.Step, out.Outcome, out.Note = strings.TrimSpace(
			e.Change.Kind+" "+e.Change.Name,
		), stepOutcomes[e.Change.Action], e.Change.Note
	case report.Object:
		out.Object, out.Outcome, out.Note = e.Object.Kind+" "+e.Object.Name, stepOutcomes[e.Object.Action], maskSecrets(
			e.Object.Note,
			j.secrets,
		)
		if e.Object.Action == plan.None && e.Object.Note == "" {
			return
		}
	case report.Phase:
		out.Outcome = "note"
	case report.Connect:
		out.Outcome, out.Step = "note", "connect"
	}
	j.target.Write(out)
}
