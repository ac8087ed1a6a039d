package objects

import (
	"context"
	"slices"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/ledger"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

const reconcileTimeout = 10 * time.Minute

// Apply applies the objects and records them. Nodes that this run creates get their labels later, by LabelNodes.
func (a *Applier) Apply(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	if err := a.Ledger.Held(); err != nil {
		return err
	}
	if list := a.Situation.ReplacedObjects(a.Decision.Refused); len(list) > 0 && a.recreatedObjects == nil {
		if err := a.Session.API.Delete(ctx, list); err != nil {
			return err
		}
		a.recreatedObjects = list
		for _, o := range list {
			a.Session.Report(
				report.Event{
					Kind: report.Object,
					Object: &plan.Object{
						Address: o.Address,
						Kind:    o.Kind,
						Name:    o.FullName(),
						Action:  plan.Remove,
						Note:    "to be created again",
					},
				},
			)
		}
	}
	parts, err := SelectParts(a.Session.API, a.Situation, a.Ledger)
	if err != nil {
		return err
	}
	// References are recorded before the objects exist. If this run were interrupted and the block then deleted from
	// the configuration, nothing else would list the object.
	references, err := a.Session.API.References(parts.Declared)
	if err != nil {
		return err
	}
	if added := missingFrom(a.Situation.State.Objects, references); len(added) > 0 {
		if err := a.recordObjects(append(slices.Clone(a.Situation.State.Objects), added...)); err != nil {
			return err
		}
	}
	applied, err := a.Session.API.Apply(ctx, decide.WithMachines(parts.Declared,
		func(m config.Machine) bool { return !a.isNodeCreatedNow(m) }), parts.Before, a.reportObject)
	if applied != nil {
		applied = append(applied, missingFrom(applied, parts.Untouched)...)
	}
	if applied != nil && !slices.Equal(applied, a.Situation.State.Objects) {
		if writeErr := a.recordObjects(applied); writeErr != nil {
			return writeErr
		}
	}
	return err
}

// missingFrom returns the objects of more that are not in list.
func missingFrom(list, more []state.Object) (rest []state.Object) {
	in := make(map[state.Object]bool, len(list))
	for _, o := range list {
		in[o] = true
	}
	for _, o := range more {
		if !in[o] {
			in[o] = true
			rest = append(rest, o)
		}
	}
	return rest
}

// recordObjects records the applied objects, while machines may be recorded in parallel.
func (a *Applier) recordObjects(list []state.Object) error {
	return a.Ledger.Change(func(s *state.State) { s.Objects = list })
}

// SelectParts returns what a run selects of the configuration and of the applied objects.
func SelectParts(api session.Cluster, of *decide.Situation, l *ledger.Ledger) (parts decide.Parts, err error) {
	var declared []state.Object
	if of.Options.IsPartial() {
		if declared, err = api.References(of.Config); err != nil {
			return parts, err
		}
	}
	l.View(func(*state.State) { parts = of.SelectParts(declared) })
	return parts, nil
}
