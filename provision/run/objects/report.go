package objects

import (
	"slices"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/state"
)

func (a *Applier) reportObject(o plan.Object) {
	if o.Action == plan.Create && a.wasReplaced(o) {
		o.Action, o.Note = plan.Replace, "deleted, and created again"
	}
	a.Session.Report(report.Event{Kind: report.Object, Object: &o, Message: o.Note})
	if o.Action == plan.None {
		return
	}
	before := slices.IndexFunc(a.Decision.Plan.Objects, func(e plan.Object) bool {
		return e.Action == plan.Refused && e.Kind == o.Kind && e.Name == o.Name && e.Address == o.Address
	})
	switch {
	case before >= 0: // it was refused before and is accepted now
		a.Decision.Plan.Objects[before] = o
	case a.Decision.Plan.IsPending:
		a.Decision.Plan.Objects = append(a.Decision.Plan.Objects, o)
	}
}

// wasReplaced reports whether this run has deleted an object in order to create it again.
func (a *Applier) wasReplaced(o plan.Object) bool {
	return slices.ContainsFunc(a.recreatedObjects,
		func(r state.Object) bool { return r.Kind == o.Kind && r.FullName() == o.Name })
}
