package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// parallelEnd returns the end index of the objects, starting at from, that may be applied at the same time, because
// none must exist before another.
func parallelEnd(desired []Desired, from int) int {
	to := from + 1
	for to < len(desired) && desired[to].Wave == desired[from].Wave &&
		kindRank(desired[to].Object.GetKind()) == kindRank(desired[from].Object.GetKind()) {
		to++
	}
	return to
}

// orderedReporter reports results of parallel work in the order of a list.
type orderedReporter struct {
	mu     sync.Mutex
	report func(i int)
	ended  []bool
	next   int
}

func (t *orderedReporter) finish(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended[i] = true
	for t.next < len(t.ended) && t.ended[t.next] {
		t.report(t.next)
		t.next++
	}
}

// applyAll applies objects that do not depend on each other. done are those that exist now, including refused ones that
// may exist from before.
func (l *Live) applyAll(
	ctx context.Context,
	desired []Desired,
	deadline time.Time,
	notify func(plan.Object),
) (done []state.Object, refused []session.Refusal, err error) {
	existing, err := l.listExisting(ctx, references(desired))
	if err != nil {
		existing = nil // perhaps a cluster that has just started: read the objects one by one and retry
	}
	objects, failed := make([]plan.Object, len(desired)), make([]error, len(desired))
	t := orderedReporter{ended: make([]bool, len(desired)), report: func(i int) {
		if objects[i].Action != plan.None {
			notify(objects[i])
		}
	}}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallel)
	for i, d := range desired {
		g.Go(func() error {
			if gctx.Err() != nil {
				return gctx.Err()
			}
			o, err := l.applyOne(gctx, d, existing, deadline)
			if isRefusal(err) {
				failed[i] = err
				o.Action, o.Note, o.Diff = plan.Refused, newRefusal(d, err).Err.Error(), nil
			} else if err != nil {
				return fmt.Errorf("%s: apply %s %s: %w", d.Address, o.Kind, o.Name, err)
			}
			objects[i] = o
			t.finish(i)
			return nil
		})
	}
	err = g.Wait()
	for i, d := range desired {
		if failed[i] != nil {
			refused = append(refused, newRefusal(d, failed[i]))
		}
		if t.ended[i] && !d.IsNeverPruned && !errors.As(failed[i], new(foreignError)) {
			done = append(done, d.reference())
		}
	}
	return done, refused, err
}

// pruneAll deletes objects that are no longer declared and still belong to clusterctl.
func (l *Live) pruneAll(ctx context.Context, list []state.Object, notify func(plan.Object)) error {
	existing, err := l.listExisting(ctx, list)
	if err != nil {
		return err
	}
	removed := make([]bool, len(list))
	t := orderedReporter{ended: make([]bool, len(list)), report: func(i int) {
		if o := list[i]; removed[i] {
			notify(
				plan.Object{
					Address: o.Address,
					Kind:    o.Kind,
					Name:    fullName(o.Namespace, o.Name),
					Action:  plan.Remove,
					Note:    "removed",
				},
			)
		}
	}}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallel)
	for i, o := range list {
		g.Go(func() (err error) {
			if gctx.Err() != nil {
				return gctx.Err()
			}
			if removed[i], err = l.prune(gctx, o, existing); err == nil {
				t.finish(i)
			}
			return err
		})
	}
	return g.Wait()
}

// maxConflicts is the maximum number of retries of an object with ignored fields after a conflicting write.
const maxConflicts = 20

// applyOne applies an object unless a dry run shows that nothing would change, so that a run without changes writes
// nothing. It retries temporary errors until the deadline.
func (l *Live) applyOne(ctx context.Context, d Desired, existing *listedObjects,
	deadline time.Time) (plan.Object, error) {
	pause := 100 * time.Millisecond
	for conflicts := 0; ; existing = nil { // a retry reads the live object again
		d := d
		o, err := l.applyOnce(ctx, &d, existing)
		if err == nil {
			return o, nil
		}
		if d.version != "" && apierrors.IsConflict(err) && conflicts < maxConflicts {
			conflicts++
			continue
		}
		if !isTemporary(err) || time.Now().After(deadline) || ctx.Err() != nil {
			return o, err
		}
		l.mapper.Reset() // the kind may have been defined a moment ago
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

// applyOnce is one attempt of applyOne. It stores the live object in d.
func (l *Live) applyOnce(ctx context.Context, d *Desired, existing *listedObjects) (plan.Object, error) {
	o, err := l.compare(ctx, d, existing)
	if err != nil || o.Action == plan.None {
		return o, err
	}
	client, err := l.client(d.Object.GroupVersionKind(), d.Object.GetNamespace())
	if err != nil {
		return o, err
	}
	written, err := l.write(ctx, client, *d)
	if err != nil {
		return o, err
	}
	l.unchanged.record(*d, written)
	d.live = written
	return o, nil
}

// isTemporary reports whether an error may be temporary, because the cluster is starting or a controller has not acted
// yet.
func isTemporary(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, new(foreignError)) {
		return false
	}
	if !errors.As(err, &status) {
		return true // a connection error, or a kind that is not served yet
	}
	return apierrors.IsNotFound(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) ||
		apierrors.IsConflict(err) ||
		apierrors.IsForbidden(err) &&
			(strings.Contains(err.Error(), "service account") || strings.Contains(err.Error(), "not yet"))
}

// prune deletes an object if it still belongs to clusterctl.
func (l *Live) prune(ctx context.Context, o state.Object, existing *listedObjects) (bool, error) {
	live, err := existing.get(ctx, l.connection, o)
	if err != nil || live == nil || l.foreignManagers(live) != "" || live.GetDeletionTimestamp() != nil {
		return false, err
	}
	client, err := l.client(live.GroupVersionKind(), o.Namespace)
	if err != nil {
		return false, err
	}
	background, uid := metav1.DeletePropagationBackground, live.GetUID()
	err = client.Delete(ctx, o.Name,
		metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("%s: remove %s %s: %w", o.Address, o.Kind, fullName(o.Namespace, o.Name), err)
	}
	return true, nil
}
