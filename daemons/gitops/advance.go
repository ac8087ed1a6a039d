package gitops

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config/gitsource"
)

// progress is why work is not finished.
type progress struct {
	message string
	after   time.Duration // when to go on
}

// advance continues work as far as the health of its objects allows. It returns nil, nil if the work is finished.
func (c *Controller) advance(ctx context.Context, s *Source, e *entry, st *gitsource.Status,
	w *work) (*progress, *failure) {
	for ; w.next < len(w.stages); w.next++ {
		if w.next > 0 {
			if p, f := c.awaitHealth(ctx, s, e, w, requiredBefore(w.stages, w.next)); p != nil || f != nil {
				return p, f
			}
		}
		if p, f := c.applyStage(ctx, s, w, w.stages[w.next]); p != nil || f != nil {
			return p, f
		}
		w.start, w.polls = c.Clock.Now(), 0
	}
	st.AppliedRevision, st.AppliedSpec = w.revision, specDigest(&s.Spec)
	st.Drifted, st.Failed = limitList(slices.Clone(w.drifted)), nil
	e.digest = w.digest
	c.reportChanges(s, w)
	if f := c.prune(ctx, s, e, st, w); f != nil {
		return nil, f
	}
	return c.awaitHealth(ctx, s, e, w, w.objects())
}

// reportChanges records events about what was applied, once.
func (c *steps) reportChanges(s *Source, w *work) {
	if len(w.revert) > 0 {
		c.event(s, corev1.EventTypeNormal, "DriftReverted", strings.Join(limitList(w.revert), ", "))
	}
	if len(w.changed) > 0 {
		c.event(s, corev1.EventTypeNormal, "Applied",
			fmt.Sprintf("%s: %s", w.revision, strings.Join(limitList(w.changed), ", ")))
	}
	w.changed, w.revert = nil, nil
}

// requiredBefore returns the objects that must be healthy before a stage.
func requiredBefore(stages []stage, next int) (required []Object) {
	before := stages[next-1]
	if !before.isLast {
		for _, o := range before.objects {
			if o.GetKind() == "Namespace" || o.GetKind() == "CustomResourceDefinition" {
				required = append(required, o)
			}
		}
		return required
	}
	for _, st := range stages[:next] {
		if st.wave == before.wave {
			required = append(required, st.objects...)
		}
	}
	return required
}

// awaitHealth returns nil, nil if objects are healthy, and otherwise what they wait for. Objects that are unhealthy for
// longer than the source's timeout are a failure.
func (c *steps) awaitHealth(ctx context.Context, s *Source, e *entry, w *work,
	objects []Object) (*progress, *failure) {
	var missing inventory
	of := len(objects)
	objects = w.remaining(objects)
	for _, o := range objects {
		if _, ok := w.live[o.ID().identity()]; !ok {
			missing = append(missing, o.ID())
		}
	}
	if len(missing) > 0 {
		lives, err := w.applier.Find(ctx, missing)
		if err != nil {
			return nil, fail(reasonHealth, "read the live objects", err)
		}
		for i, id := range missing {
			w.live[id.identity()] = lives[i]
		}
	}
	var unhealthy []string
	broken := false
	for _, o := range objects {
		policy, err := driftPolicy(s, o)
		state, cause := Health(w.live[o.ID().identity()])
		if state == HealthNotFound && err == nil && policy == gitsource.DriftReport && !w.declared {
			continue // reported as drift
		}
		if state != HealthCurrent {
			unhealthy = append(unhealthy, o.ID().String()+": "+cause)
			broken = broken || state == HealthFailed
		}
	}
	if len(unhealthy) == 0 {
		e.unhealthy = ""
		return nil, nil
	}
	text := strings.Join(limitList(unhealthy), "; ")
	if c.Clock.Since(w.start) >= s.Spec.Limit() || broken || e.unhealthy == w.digest {
		e.unhealthy = w.digest // later rounds do not wait again
		return nil, &failure{reason: reasonHealth, objects: unhealthy,
			err: fmt.Errorf("%d of %d objects are not healthy: %s", len(unhealthy), of, text)}
	}
	p := &progress{message: "waits for health: " + text, after: w.healthPoll()}
	w.polls++
	return p, nil
}

// applyStage applies the objects of a stage, as their drift policies allow.
func (c *Controller) applyStage(ctx context.Context, s *Source, w *work, st stage) (*progress, *failure) {
	existed := func(id ObjectID) bool { return w.existed[id.identity()] }
	apply, compare := split(s, w.remaining(st.objects), w.declared, existed)
	own := applied(s)
	for i, o := range apply {
		apply[i].Adopt = o.Adopt || own(o.ID())
		apply[i].Live = w.live[o.ID().identity()]
	}
	results, err := w.applier.Apply(ctx, apply)
	if err != nil {
		return nil, fail(reasonApply, "apply the objects", err)
	}
	var failed []string
	var recreated []string
	for i, r := range results {
		o := apply[i]
		switch {
		case r.Err != nil && recreates(s, o, r.Err):
			if f := c.recreate(ctx, s, w, o); f != nil {
				return nil, f
			}
			recreated = append(recreated, o.ID().String())
		case r.Err != nil:
			failed = append(failed, o.position()+": "+r.Err.Error())
		case r.Action == ActionNone:
			w.recordVersion(o, r.Live)
		case w.declared:
			w.recordVersion(o, r.Live)
			w.changed = append(w.changed, string(r.Action)+" "+o.ID().String())
		default:
			w.recordVersion(o, r.Live)
			w.revert = append(w.revert, describeDrift(s, o, r))
		}
		delete(w.live, o.ID().identity())
		if r.Live != nil {
			w.live[o.ID().identity()] = r.Live
		}
	}
	if f := failedObjects(failed, len(st.objects), "objects after them are not applied"); f != nil {
		return nil, f
	}
	if len(recreated) > 0 { // the deletion may take time; the stage is applied again
		return &progress{message: "recreates " + strings.Join(limitList(recreated), ", "), after: time.Second}, nil
	}
	return nil, c.compareStage(ctx, s, w, compare)
}

// compareStage lists the objects that differ and that are not reverted.
func (c *Controller) compareStage(ctx context.Context, s *Source, w *work, objects []Object) *failure {
	if len(objects) == 0 {
		return nil
	}
	for i, o := range objects {
		objects[i].Live = w.live[o.ID().identity()]
	}
	results, err := w.applier.Compare(ctx, objects)
	if err != nil {
		return fail(reasonApply, "compare the objects", err)
	}
	for i, r := range results {
		switch {
		case r.Err != nil:
			text := objects[i].ID().String() + ": " + r.Err.Error()
			if w.redact != nil {
				text = w.redact(text)
			}
			w.drifted = append(w.drifted, text)
		case r.Action != ActionNone:
			w.drifted = append(w.drifted, describeDrift(s, objects[i], r))
		default:
			w.recordVersion(objects[i], r.Live)
		}
	}
	return nil
}

// recreate deletes an object whose immutable field differs. The next round creates it.
func (c *steps) recreate(ctx context.Context, s *Source, w *work, o Object) *failure {
	lives, err := w.applier.Find(ctx, []ObjectID{o.ID()})
	if err == nil && lives[0] != nil && lives[0].GetDeletionTimestamp() == nil {
		err = w.applier.Delete(ctx, o.ID(), lives[0].GetUID())
		c.event(s, corev1.EventTypeNormal, "Recreated", o.ID().String()+": an immutable field has changed")
	}
	if err != nil {
		return fail(reasonApply, "recreate "+o.ID().String(), err)
	}
	return nil
}

// prune deletes the objects that are no longer rendered, and records what is left of them.
func (c *Controller) prune(ctx context.Context, s *Source, e *entry, st *gitsource.Status, w *work) *failure {
	if len(w.obsolete) == 0 || w.pruned {
		return nil
	}
	left, f := c.pruneAll(ctx, s, st, w.applier, w.revision, w.obsolete)
	w.pruned = f == nil
	st.Inventory, st.Pruning = idsOf(w.objects()).union(left).strings(), left.strings()
	if err := c.writeStatus(ctx, s, e, st); err != nil && f == nil {
		f = fail(reasonStatus, "record the inventory", err)
	}
	return f
}

// pruneAll decides about objects and deletes them. It returns those that stay in the inventory.
func (c *Controller) pruneAll(ctx context.Context, s *Source, st *gitsource.Status, a Applier, revision string,
	ids inventory) (left inventory, f *failure) {
	c.moveMu.Lock()
	defer c.moveMu.Unlock()
	others := c.others(s)
	var deleted, released []string
	for _, id := range deletionOrder(ids) {
		lives, err := a.Find(ctx, []ObjectID{id})
		if err != nil {
			left = append(left, id)
			f = fail(reasonPrune, "read "+id.String(), err)
			continue
		}
		d := decidePrune(s, revision, id, lives[0], others)
		switch d.action {
		case pruneWait:
			left = append(left, id)
			continue
		case pruneRelease:
			released = append(released, id.String()+": "+d.reason)
			continue
		}
		if err := a.Delete(ctx, id, d.uid); err != nil {
			left = append(left, id)
			f = fail(reasonPrune, "delete "+id.String(), err)
			continue
		}
		// It stays in the inventory until it is gone, which finalizers may delay.
		left = append(left, id)
		deleted = append(deleted, id.String())
	}
	left = slices.DeleteFunc(left, func(id ObjectID) bool { // most objects are gone at once
		if !slices.Contains(deleted, id.String()) {
			return false
		}
		lives, err := a.Find(ctx, []ObjectID{id})
		return err == nil && lives[0] == nil
	})
	if len(deleted) > 0 {
		st.Pruned = limitList(slices.Clone(deleted))
		c.event(s, corev1.EventTypeNormal, "Pruned", strings.Join(st.Pruned, ", "))
	}
	if len(released) > 0 {
		c.event(s, corev1.EventTypeNormal, "Released", strings.Join(limitList(released), ", "))
	}
	return left, f
}
