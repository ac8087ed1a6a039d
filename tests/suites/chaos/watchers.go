package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"clusterctl/tests/suites/chaos/check"
)

// Watcher records the events of the namespace's config maps that it receives. After a lost connection it resumes at its
// last revision.
type Watcher struct {
	name string
	api  kubernetes.Interface

	views        []check.Watch // the last one is the current one
	resumes      int
	lastRevision int64         // the revision of the last event or bookmark
	longestGap   time.Duration // the longest time without an accepted watch
	endings      chan finalState
}

// finalState is the state of the collection after the last write.
type finalState struct {
	revision int64
	objects  map[string]int64
}

// Run watches until it has received all events up to the ending that it gets from w.end, or until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	lost := time.Now()
	var goal *finalState
	for {
		if len(w.views) == 0 || w.views[len(w.views)-1].HasRelisted {
			if err := w.list(ctx); err != nil {
				if !pauseBeforeRetry(ctx) {
					return nil
				}
				continue
			}
		}
		opening, stop := context.WithCancel(ctx)
		late := time.AfterFunc(requestTimeout, stop)
		stream, err := w.api.CoreV1().
			ConfigMaps(namespace).
			Watch(opening, metav1.ListOptions{ResourceVersion: fmt.Sprint(w.lastRevision), AllowWatchBookmarks: true})
		inTime := late.Stop()
		if err != nil || !inTime {
			stop()
			if err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
				w.views[len(w.views)-1].HasRelisted = true
			}
			if !pauseBeforeRetry(ctx) {
				return nil
			}
			continue
		}
		w.longestGap = max(w.longestGap, time.Since(lost))
		w.resumes++
		err = w.readEvents(ctx, stream, &goal)
		stream.Stop()
		stop()
		lost = time.Now()
		if err == nil || !pauseBeforeRetry(ctx) {
			return nil
		}
	}
}

// pauseBeforeRetry waits briefly before another attempt, and reports whether to make it.
func pauseBeforeRetry(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

func (w *Watcher) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	end, err := listObjects(ctx, w.api, metav1.ListOptions{})
	if err != nil {
		return err
	}
	w.lastRevision = end.revision
	w.views = append(w.views,
		check.Watch{Name: fmt.Sprintf("%s/%d", w.name, len(w.views)), From: end.revision, Listed: end.objects})
	return nil
}

func listObjects(ctx context.Context, api kubernetes.Interface, o metav1.ListOptions) (finalState, error) {
	maps, err := api.CoreV1().ConfigMaps(namespace).List(ctx, o)
	if err != nil {
		return finalState{}, err
	}
	end := finalState{objects: map[string]int64{}}
	if _, err := fmt.Sscan(maps.ResourceVersion, &end.revision); err != nil {
		return end, fmt.Errorf("read the resource version %q of a list: %w", maps.ResourceVersion, err)
	}
	for i := range maps.Items {
		end.objects[string(maps.Items[i].UID)] = revision(&maps.Items[i])
	}
	return end, nil
}

// readEvents processes events until the goal is reached. It returns an error if the stream breaks.
func (w *Watcher) readEvents(ctx context.Context, stream watch.Interface, goal **finalState) error {
	view := &w.views[len(w.views)-1]
	for {
		if *goal != nil && w.lastRevision >= (*goal).revision {
			view.Upto, view.End = (*goal).revision, (*goal).objects
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case end := <-w.endings:
			*goal = &end
		case e, open := <-stream.ResultChan():
			if !open {
				return errors.New("the stream ended")
			}
			if e.Type == watch.Error {
				if err := apierrors.FromObject(e.Object); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
					view.HasRelisted = true
				}
				return errors.New("the server ended the watch")
			}
			object, ok := e.Object.(*corev1.ConfigMap)
			if !ok {
				return fmt.Errorf("a watch sent a %T", e.Object)
			}
			at := revision(object)
			if e.Type != watch.Bookmark {
				view.Events = append(view.Events,
					check.Event{Type: string(e.Type), UID: string(object.UID), Revision: at})
			}
			w.lastRevision = at
		}
	}
}
