package run

import (
	"context"
	"errors"
	"slices"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// changeAndApplyObjects changes machines, and applies the objects as soon as an API server answers. So a machine that
// hangs or fails does not delay the objects. control changes an existing control plane. It runs before the objects are
// applied, even if it fails, because a new release may know kinds that the former one does not. rest is all other work
// on machines and runs in parallel. refused are the objects that the API refuses; they do not stop other work.
func (p *Prepared) changeAndApplyObjects(ctx context.Context, control, rest func(context.Context) error) (refused,
	failed error) {
	failed = control(ctx)
	through := make(chan struct{})
	go func() {
		defer close(through)
		if failed == nil {
			failed = rest(ctx)
		}
	}()
	brought, err := p.awaitAPIServer(ctx, through), error(nil)
	if brought {
		err = p.applyObjects(ctx)
	}
	<-through
	if !brought && failed == nil && !session.IsInterrupted(ctx) {
		brought, err = true, p.applyObjects(ctx) // its error explains why the API does not answer
	}
	var list, labels session.RefusedError
	err = list.Collect(err)
	if brought && !session.IsInterrupted(ctx) {
		labelErr := labels.Collect(p.labelNodes(ctx))
		// A machine that has finished meanwhile may run the webhook because of which objects were refused.
		if len(list.List) > 0 && err == nil && len(p.session.WithAction(plan.Create, plan.Change, plan.Replace)) > 0 &&
			!session.IsInterrupted(ctx) {
			list = session.RefusedError{}
			err = list.Collect(p.applyObjects(ctx))
		}
		err = errors.Join(err, labelErr)
	}
	if list.Add(labels); len(list.List) > 0 {
		refused = list
	}
	if failed = errors.Join(failed, err); failed == nil && refused == nil && p.session.HasAll() {
		failed = p.awaitHealthyObjects(ctx)
	}
	return refused, failed
}

// awaitAPIServer waits until an API server answers. It gives up when the work on machines ends without that.
func (p *Prepared) awaitAPIServer(ctx context.Context, through <-chan struct{}) bool {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for last := false; ; {
		if _, err := p.session.API.Nodes(ctx); err == nil {
			return true
		}
		if last {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-through:
			last = true
		case <-tick.C:
		}
	}
}

const reconcileTimeout = 10 * time.Minute

// applyObjects applies the objects and records them. Nodes that this run creates get their labels later, in label.
func (p *Prepared) applyObjects(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	if err := p.ledger.Held(); err != nil {
		return err
	}
	if list := p.situation.ReplacedObjects(p.Refused); len(list) > 0 && p.recreatedObjects == nil {
		if err := p.session.API.Delete(ctx, list); err != nil {
			return err
		}
		p.recreatedObjects = list
		for _, o := range list {
			p.session.Report(
				report.Event{
					Kind: report.Object,
					Object: &plan.Object{
						Address: o.Address,
						Kind:    o.Kind,
						Name:    o.FullName(),
						Action:  plan.Remove,
						Note:    "to be made anew",
					},
				},
			)
		}
	}
	parts, err := p.selectParts()
	if err != nil {
		return err
	}
	// References are recorded before the objects exist. If this run were interrupted and the block then deleted from
	// the configuration, nothing else would list the object.
	references, err := p.session.API.References(parts.Declared)
	if err != nil {
		return err
	}
	if added := missingFrom(p.State.Objects, references); len(added) > 0 {
		if err := p.recordObjects(append(slices.Clone(p.State.Objects), added...)); err != nil {
			return err
		}
	}
	applied, err := p.session.API.Apply(
		ctx,
		decide.WithMachines(parts.Declared, func(m config.Machine) bool { return !p.isNodeCreatedNow(m) }),
		parts.Before,
		p.reportObject,
	)
	if applied != nil {
		applied = append(applied, missingFrom(applied, parts.Untouched)...)
	}
	if applied != nil && !slices.Equal(applied, p.State.Objects) {
		if writeErr := p.recordObjects(applied); writeErr != nil {
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
func (p *Prepared) recordObjects(list []state.Object) error {
	return p.ledger.Change(func(*state.State) { p.State.Objects = list })
}

func (p *Prepared) reportObject(o plan.Object) {
	if o.Action == plan.Create && p.wasReplaced(o) {
		o.Action, o.Note = plan.Replace, "deleted, and made anew"
	}
	p.session.Report(report.Event{Kind: report.Object, Object: &o, Message: o.Note})
	if o.Action == plan.None {
		return
	}
	was := slices.IndexFunc(p.Plan.Objects, func(e plan.Object) bool {
		return e.Action == plan.Refused && e.Kind == o.Kind && e.Name == o.Name && e.Address == o.Address
	})
	switch {
	case was >= 0: // it was refused before and is accepted now
		p.Plan.Objects[was] = o
	case p.Plan.IsPending:
		p.Plan.Objects = append(p.Plan.Objects, o)
	}
}

// labelNodes gives nodes that were created in this run the labels that nodes may not set on themselves.
func (p *Prepared) labelNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	nodes := decide.WithMachines(p.engine.Config,
		func(m config.Machine) bool { return p.isNodeCreatedNow(m) && p.hasJoinedInRun(m) })
	if len(nodes.Machines) == 0 {
		return nil
	}
	nodes.Workloads, nodes.Objects = nil, nil
	_, err := p.session.API.Apply(ctx, nodes, nil, p.reportObject)
	return err
}

// awaitHealthyObjects waits until what was applied is healthy.
func (p *Prepared) awaitHealthyObjects(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	parts, err := p.selectParts()
	if err != nil {
		return err
	}
	return p.session.API.Wait(ctx, parts.Declared, p.reportObject)
}

// isNodeCreatedNow reports whether this run creates a machine's node. Labelling it before its kubelet has registered
// would create a second Node.
func (p *Prepared) isNodeCreatedNow(m config.Machine) bool {
	return slices.ContainsFunc(p.session.Machines,
		func(own *session.Machine) bool { return own.Address == m.Address && own.CreatesNode })
}

func (p *Prepared) hasJoined(m config.Machine) bool { return p.ledger.Machine(m.Address).HasJoined }

// hasJoinedInRun reports whether a machine's node has joined in this run. Joined in the state may date from before the
// machine was reinstalled.
func (p *Prepared) hasJoinedInRun(m config.Machine) (joined bool) {
	p.ledger.View(func(*state.State) {
		joined = slices.ContainsFunc(p.session.Machines,
			func(own *session.Machine) bool { return own.Address == m.Address && own.HasJoinedNow })
	})
	return joined
}
