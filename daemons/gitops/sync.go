package gitops

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/config/gitsource"
)

// sync runs one round for a source. It returns the pause before the next one, or zero if the next one follows a change.
func (c *Controller) sync(ctx context.Context, key Key) time.Duration {
	s := c.find(key)
	c.mu.Lock()
	e := c.entryOf(key)
	if s == nil || e.uid != "" && e.uid != string(s.UID) { // deleted, or deleted and created again
		c.dropRecord(e)
		delete(c.entries, key)
		e = c.entryOf(key)
	}
	if s == nil {
		delete(c.entries, key)
		delete(c.pruning, key)
		c.mu.Unlock()
		c.notes.forget(key)
		return 0
	}
	h := e.history
	c.mu.Unlock()
	e.uid = string(s.UID)
	started := c.Clock.Now()
	if s.DeletionTimestamp != nil {
		return c.finalize(ctx, s, e)
	}
	v := decide(s, h, started, c.find)
	if e.work.isCurrent(s) && !s.Spec.Suspend && v.reason == "" {
		v.run = true // goes on
	}
	if !v.run {
		e.work = nil
		return c.postpone(ctx, s, e, v)
	}
	if after, ok := c.hold(ctx, s, e); !ok {
		return after
	}
	after, outcome := c.round(ctx, s, e)
	if c.Observe != nil {
		c.Observe.Reconciled(key, outcome, c.Clock.Since(started))
	}
	return after
}

// postpone reports why a source is not reconciled now.
func (c *Controller) postpone(ctx context.Context, s *Source, e *entry, v verdict) time.Duration {
	st := *cloneStatus(&s.Status)
	switch {
	case v.reason != "":
		e.attempted = "" // the failure is not that of a revision
		setFailed(&st, s.Generation, c.Clock.Now(), v.stalled, v.reason, v.message)
	case s.Spec.Suspend:
		removeCondition(&st, gitsource.ConditionReconciling)
		st.HandledSync = s.Annotations[gitsource.SyncAnnotation] // it is not carried out after a later resumption
	default:
		return v.after
	}
	st.ObservedGeneration = s.Generation
	if err := c.writeStatus(ctx, s, e, &st); err != nil {
		c.Log.Warn("write a status", "source", s.Key(), "err", err)
		return s.Spec.Retry()
	}
	return v.after
}

// hold sets the finalizer of a source that prunes, and removes it from one that does not. It returns false if the
// source has changed, so that a later round goes on.
func (c *Controller) hold(ctx context.Context, s *Source, e *entry) (time.Duration, bool) {
	if slices.Contains(s.Finalizers, gitsource.Finalizer) == s.Spec.Prunes() {
		return 0, true
	}
	list := slices.DeleteFunc(slices.Clone(s.Finalizers), func(f string) bool { return f == gitsource.Finalizer })
	if s.Spec.Prunes() {
		list = append(list, gitsource.Finalizer)
	}
	if err := c.writeFinalizers(ctx, s, list); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		c.Log.Warn("write the finalizer of a source", "source", s.Key(), "err", err)
		return s.Spec.Retry(), false
	}
	return 0, false // the change causes the next round
}

// round starts or continues work, and writes the outcome into the status.
func (c *Controller) round(ctx context.Context, s *Source, e *entry) (after time.Duration, outcome string) {
	st := cloneStatus(&s.Status)
	var f *failure
	if w := e.work; w.isCurrent(s) {
		clear(w.live)
		c.findSame(s, e, w)
	} else {
		c.mu.Lock()
		e.recheck, e.handled = false, s.Requested
		c.mu.Unlock()
		c.receive(ctx, s, st)
		e.work, f = c.begin(ctx, s, e, st)
	}
	var p *progress
	if f == nil && !e.work.isUnchanged {
		p, f = c.advance(ctx, s, e, st, e.work)
		f.redact(e.work.redact)
		if p != nil && e.work.redact != nil {
			p.message = e.work.redact(p.message)
		}
	}
	if ctx.Err() != nil {
		return 0, "stopped" // an error that is due to the stop is not reported
	}
	st.ObservedGeneration = s.Generation
	now := c.Clock.Now()
	if p != nil {
		setProgressing(st, s.Generation, now, p.message)
		c.reportStatus(ctx, s, e, st)
		return p.after, "progressing"
	}
	if f == nil || f.reason != reasonStatus {
		st.HandledSync = s.Annotations[gitsource.SyncAnnotation]
	}
	pause := s.Spec.Every()
	e.lastRun, e.generation = now, s.Generation
	if f != nil {
		e.failures++
		pause, outcome = backoff(&s.Spec, e.failures), f.reason
		st.Failed = limitList(slices.Clone(f.objects))
		setFailed(st, s.Generation, now, f.stalled, f.reason, f.Error())
		if e.message != f.Error() {
			c.event(s, corev1.EventTypeWarning, f.reason, f.Error())
		}
		e.message = f.Error()
	} else {
		e.failures, e.message, outcome = 0, "", "ready"
		if !e.work.isUnchanged {
			c.recordObjects(e, e.work)
		}
		setReady(st, s.Generation, now, readyMessage(e.work, st))
	}
	e.work = nil
	if !c.reportStatus(ctx, s, e, st) {
		return s.Spec.Retry(), outcome
	}
	return spread(pause), outcome
}

// readyMessage returns the message of the Ready condition of a source whose objects are applied and healthy.
func readyMessage(w *work, st *gitsource.Status) string {
	text := fmt.Sprintf("%d objects of %s are applied", st.Objects, w.revision)
	if n := len(w.drifted); n > 0 {
		text += fmt.Sprintf(", of which %d differ and are not reverted", n)
	}
	if n := len(st.Pruning); n > 0 {
		text += fmt.Sprintf("; %d objects are still to be deleted", n)
	}
	return text
}

// finalizePause is the pause before the objects of a deleted source are looked at again.
const finalizePause = 2 * time.Second

// finalize deletes the objects of a deleted source, and removes its finalizer once they are gone.
func (c *Controller) finalize(ctx context.Context, s *Source, e *entry) time.Duration {
	e.work = nil
	if !slices.Contains(s.Finalizers, gitsource.Finalizer) {
		return 0
	}
	st := cloneStatus(&s.Status)
	left, f := c.finalPrune(ctx, s, st)
	if f != nil {
		e.failures++
		setFailed(st, s.Generation, c.Clock.Now(), false, f.reason, f.Error())
		c.reportStatus(ctx, s, e, st)
		if e.message != f.Error() {
			c.event(s, corev1.EventTypeWarning, f.reason, f.Error())
		}
		e.message = f.Error()
		return backoff(&s.Spec, e.failures)
	}
	if len(left) > 0 {
		st.Inventory, st.Pruning = left.strings(), left.strings()
		setProgressing(st, s.Generation, c.Clock.Now(), fmt.Sprintf("waits for the deletion of %d objects", len(left)))
		c.reportStatus(ctx, s, e, st)
		return finalizePause
	}
	rest := slices.DeleteFunc(slices.Clone(s.Finalizers), func(x string) bool { return x == gitsource.Finalizer })
	if err := c.writeFinalizers(ctx, s, rest); err != nil && !apierrors.IsNotFound(err) {
		return finalizePause
	}
	return 0
}

// finalPrune deletes the objects of a deleted source. It returns those that still exist.
func (c *Controller) finalPrune(ctx context.Context, s *Source, st *gitsource.Status) (inventory, *failure) {
	ids, err := parseInventory(s.Status.Inventory)
	if err != nil {
		return nil, fail(reasonStatus, "read the status", err)
	}
	if c.isEnding(ctx, s.Namespace) {
		// They are deleted with the namespace. The rights of the source's account may be gone already, so that the
		// source would keep the namespace for ever.
		ids = slices.DeleteFunc(ids, func(id ObjectID) bool { return id.Namespace == s.Namespace })
	}
	if !s.Spec.Prunes() || len(ids) == 0 {
		return nil, nil
	}
	a, err := c.Cluster.As(s.Namespace, s.Account())
	if err != nil {
		return nil, fail(reasonAccount, "act as service account "+s.Namespace+"/"+s.Account(), err)
	}
	return c.pruneAll(ctx, s, st, a, "", ids)
}

// isEnding reports whether a namespace is being deleted. It returns false if that is not known.
func (c *Controller) isEnding(ctx context.Context, namespace string) bool {
	o, err := c.Client.Resource(namespaces).Get(ctx, namespace, metav1.GetOptions{})
	return err == nil && o.GetDeletionTimestamp() != nil
}

// reportStatus writes a status and logs an error.
func (c *Controller) reportStatus(ctx context.Context, s *Source, e *entry, st *gitsource.Status) bool {
	if err := c.writeStatus(ctx, s, e, st); err != nil {
		c.Log.Warn("write a status", "source", s.Key(), "err", err)
		return false
	}
	return true
}

// writeStatus writes a status unless it is the present one. A source that was deleted or created again is an error.
func (c *Controller) writeStatus(ctx context.Context, s *Source, e *entry, st *gitsource.Status) error {
	if reflect.DeepEqual(normalize(st), normalize(&s.Status)) {
		return nil
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": s.UID},
		{"op": "add", "path": "/status", "value": st},
	})
	if err != nil {
		return err
	}
	_, err = c.Client.Resource(sources).Namespace(s.Namespace).Patch(ctx, s.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: gitsource.Manager}, "status")
	if err != nil {
		return err
	}
	c.mu.Lock()
	e.status, e.statusUID = cloneStatus(st), string(s.UID)
	if len(st.Pruning) > 0 {
		c.pruning[s.Key()] = true
	} else {
		delete(c.pruning, s.Key())
	}
	c.mu.Unlock()
	before := s.Status
	s.Status = *cloneStatus(st)
	c.announce(s, e, &before, st)
	c.wake(s.Key()) // the watch may have reported the change before this process knew of it
	return nil
}

// writeFinalizers replaces the finalizers of a source, unless the source has changed since.
func (c *Controller) writeFinalizers(ctx context.Context, s *Source, list []string) error {
	if list == nil {
		list = []string{}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.UID, "resourceVersion": s.ResourceVersion, "finalizers": list}})
	if err != nil {
		return err
	}
	_, err = c.Client.Resource(sources).Namespace(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: gitsource.Manager})
	return err
}

// cloneStatus returns a deep copy.
func cloneStatus(st *gitsource.Status) *gitsource.Status {
	out := *st
	out.Conditions = slices.Clone(st.Conditions)
	for _, list := range []*[]string{&out.Inventory, &out.Pruning, &out.Pruned, &out.Drifted, &out.Failed} {
		*list = slices.Clone(*list)
	}
	return &out
}

// normalize returns a copy in which empty lists are nil and times are in UTC, as they are after decoding.
func normalize(st *gitsource.Status) *gitsource.Status {
	out := cloneStatus(st)
	for _, list := range []*[]string{&out.Inventory, &out.Pruning, &out.Pruned, &out.Drifted, &out.Failed} {
		if len(*list) == 0 {
			*list = nil
		}
	}
	if len(out.Conditions) == 0 {
		out.Conditions = nil
	}
	for i := range out.Conditions {
		out.Conditions[i].LastTransitionTime = metav1.NewTime(out.Conditions[i].LastTransitionTime.UTC())
	}
	return out
}
