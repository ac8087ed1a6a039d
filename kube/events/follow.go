package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Watcher lists and watches the events of one namespace or of all.
type Watcher interface {
	Lister
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

const (
	firstPause = time.Second // before the first retry; doubled after each failure
	lastPause  = 30 * time.Second
)

// Follow calls emit for each event that a filter selects: for those of the cluster in order, then for each that is new
// or occurred again. It ends when the context ends or emit fails. When the connection is lost, it calls retry, and
// continues without a gap or a repetition. It returns the error if the first list fails or the caller may not read
// events.
func Follow(ctx context.Context, from Watcher, f Filter, emit func(Group) error, retry func(error)) error {
	followed := follower{from: from, filter: f, emit: emit}
	pause, isFirst := firstPause, true
	for {
		watched, err := followed.once(ctx)
		var refused *emitError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refused):
			return refused.error
		case err != nil && (isFirst && !watched || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)):
			return err
		case watched:
			pause = firstPause
		}
		isFirst = false
		if err != nil {
			retry(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// emitError is an error of the caller, after which nothing is retried.
type emitError struct{ error }

type follower struct {
	from   Watcher
	filter Filter
	emit   func(Group) error
	// versions are the resource versions of the events that the last list and the watch after it had.
	versions map[types.UID]string
}

// once lists the events, and watches them until the watch ends. It reports whether the watch began.
func (w *follower) once(ctx context.Context) (watched bool, err error) {
	version, err := w.list(ctx)
	if err != nil {
		return false, err
	}
	changes, err := w.from.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return false, fmt.Errorf("watch events: %w", err)
	}
	defer changes.Stop()
	for c := range changes.ResultChan() {
		switch e, isEvent := c.Object.(*corev1.Event); {
		case c.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(c.Object)):
			return true, nil
		case c.Type == watch.Error:
			return true, fmt.Errorf("watch events: %w", apierrors.FromObject(c.Object))
		case isEvent && c.Type == watch.Deleted:
			delete(w.versions, e.UID)
		case isEvent && (c.Type == watch.Added || c.Type == watch.Modified):
			w.versions[e.UID] = e.ResourceVersion
			if err := w.show(ctx, []corev1.Event{*e}); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// list emits the events that are new or have changed since the last list and the watch after it.
func (w *follower) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	all, version, _, err := read(ctx, w.from)
	if err != nil {
		return "", err
	}
	versions := make(map[types.UID]string, len(all))
	var unseen []corev1.Event
	for i := range all {
		versions[all[i].UID] = all[i].ResourceVersion
		if w.versions[all[i].UID] != all[i].ResourceVersion {
			unseen = append(unseen, all[i])
		}
	}
	w.versions = versions
	return version, w.show(ctx, unseen)
}

// show emits the events that the filter selects, the newest last.
func (w *follower) show(ctx context.Context, all []corev1.Event) error {
	selected, err := w.filter.choose(ctx, all)
	if err != nil {
		return err
	}
	for _, g := range group(selected) {
		if err := w.emit(g); err != nil {
			return &emitError{err}
		}
	}
	return nil
}

// PrintLine writes a group as one line, with the time at which it occurred last. It escapes control characters.
func PrintLine(w io.Writer, g Group) error {
	_, err := fmt.Fprintf(w, "%s  %-7s  %s  %s  %s  %s\n", g.Last.Local().Format("15:04:05"), cell(g.Type),
		cell(g.Namespace), cell(g.Kind+"/"+g.Name), cell(g.Reason), cell(g.Message))
	return err
}
