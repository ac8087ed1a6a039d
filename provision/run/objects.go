package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// compare looks at the objects, when there is a cluster to look at.
func (p *Prepared) compare(ctx context.Context) error {
	if p.engine.Destroy {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	live, err := p.engine.Live(p.State, p.engine.Config)
	if err != nil {
		return err
	}
	p.live = live
	declared, before, _, err := p.selection()
	if err != nil {
		return err
	}
	if p.fresh {
		awaited, err := live.References(declared)
		p.Plan.Pending, p.Plan.Awaited = true, len(awaited)
		return err
	}
	objects, ended, err := live.Plan(ctx, declared, before)
	var refused Refused
	switch {
	case !errors.As(err, &refused):
	case !p.upgrading() || !refused.unknown():
		return refused
	default:
		p.Plan.Pending = true
		p.Plan.Warnings = append(p.Plan.Warnings, "kinds that only the new release may know are declared, so objects are compared after the machines")
		return nil
	}
	if interrupted(ctx) {
		return ErrInterrupted
	}
	if err != nil {
		// Certificates are renewed, and daemons repaired, also when the API is down.
		p.Plan.Pending, p.Plan.Unanswered = true, err.Error()
		p.Plan.Warnings = append(p.Plan.Warnings, fmt.Sprintf("objects could not be compared with what is there, so they are compared after the machines: %v", err))
		return nil
	}
	p.ended = ended
	for _, o := range objects {
		if o.Action != plan.Create && o.Action != plan.Remove && p.engine.replaced(o.Address) {
			o.Action, o.Note = plan.Replace, "delete it, then make it anew"
		}
		if p.engine.selected(o.Address) {
			p.Plan.Objects = append(p.Plan.Objects, o)
		}
	}
	return nil
}

const reconcileTimeout = 10 * time.Minute

// reconcile brings the objects in and remembers them.
func (p *Prepared) reconcile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	if err := p.engine.Store.Held(); err != nil {
		return err
	}
	if list := p.replacedObjects(); len(list) > 0 {
		if err := p.live.Delete(ctx, list); err != nil {
			return err
		}
	}
	declared, before, rest, err := p.selection()
	if err != nil {
		return err
	}
	// What is going to be there is known before it is: were this run cut off and the block then taken
	// out of the configuration, nobody else would know of it.
	references, err := p.live.References(declared)
	if err != nil {
		return err
	}
	if added := slices.DeleteFunc(references, func(o state.Object) bool { return slices.Contains(p.State.Objects, o) }); len(added) > 0 {
		p.State.Objects = append(slices.Clone(p.State.Objects), added...)
		if err := p.engine.Store.Write(p.State); err != nil {
			return err
		}
	}
	applied, err := p.live.Apply(ctx, declared, before, func(o plan.Object) {
		p.engine.say(Event{Kind: EventObject, Object: &o, Message: o.Note})
		if p.Plan.Pending && o.Action != plan.None {
			p.Plan.Objects = append(p.Plan.Objects, o)
		}
	})
	for _, o := range rest {
		if applied != nil && !slices.Contains(applied, o) {
			applied = append(applied, o)
		}
	}
	if applied != nil && !slices.Equal(applied, p.State.Objects) {
		p.State.Objects = applied
		if writeErr := p.engine.Store.Write(p.State); err == nil {
			err = writeErr
		}
	}
	return err
}
