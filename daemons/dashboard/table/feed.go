// Package table holds live tables of Kubernetes objects: the rows that an API server makes for kubectl, in little
// memory, with the changes of a watch, and filtered and sorted windows of them.
package table

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Kind selects the objects of a table.
type Kind struct {
	Group, Version, Resource string
	Namespace                string // all namespaces when empty
}

// isValid reports whether all parts have only characters of names, so that they are parts of a path.
func (k Kind) isValid() bool {
	for _, part := range []string{k.Group, k.Version, k.Resource, k.Namespace} {
		for i := range len(part) {
			if c := part[i]; (c < 'a' || c > 'z') && !isDigit(c) && c != '-' && (c != '.' || i == 0) {
				return false
			}
		}
	}
	return k.Version != "" && k.Resource != "" && len(k.Group+k.Version+k.Resource+k.Namespace) < 1024
}

// path returns the path of a list of the objects.
func (k Kind) path() string {
	path := "/api/" + k.Version
	if k.Group != "" {
		path = "/apis/" + k.Group + "/" + k.Version
	}
	if k.Namespace != "" {
		path += "/namespaces/" + k.Namespace
	}
	return path + "/" + k.Resource
}

// Getter sends a GET request to the API server with the credentials of a visitor. A failure that the server reports is
// an error of package apierrors. The caller closes the body.
type Getter func(ctx context.Context, path, accept string) (*http.Response, error)

// The limits of a feed.
const (
	maxRows     = 200_000
	pageSize    = 500
	pageTimeout = 30 * time.Second
	// watchTime is how long a watch lasts. Some time is added at random, so that watches end at different times.
	watchTime = 5 * time.Minute
	// pollInterval is how often objects are listed that cannot be watched.
	pollInterval = 15 * time.Second
)

// backOff is how long a feed waits after failures.
type backOff struct{ first, maximum time.Duration }

func defaultBackOff() backOff { return backOff{first: time.Second, maximum: 30 * time.Second} }

// after returns the time to wait after a number of failures in sequence, with some randomness.
func (b backOff) after(failures int) time.Duration {
	wait := min(b.first<<min(max(failures-1, 0), 16), b.maximum)
	return wait/2 + rand.N(wait/2+1)
}

// heldRow is a row of a feed, with the list in which it was seen last.
type heldRow struct {
	row  *row
	list int
}

// Feed has the rows of one kind and follows their changes. Pool creates and runs feeds.
type Feed struct {
	kind    Kind
	get     Getter
	backOff backOff

	mu      sync.Mutex
	columns []Column
	rows    map[string]heldRow // by their keys
	state   State
	err     error // the table cannot be had
	lists   int   // number of lists that were begun
	views   map[*View]bool
	synced  chan struct{} // closed when the first list is complete, or the table cannot be had
	isDone  bool          // synced is closed
}

func newFeed(kind Kind, get Getter, b backOff) *Feed {
	return &Feed{kind: kind, get: get, backOff: b, rows: map[string]heldRow{}, state: Loading, views: map[*View]bool{},
		synced: make(chan struct{})}
}

// Subscribe returns a view of the feed. changed is called after each change, with a mutex held: it must not block, and
// must not call the view.
func (f *Feed) Subscribe(q Query, changed func()) *View {
	v := &View{feed: f, changed: changed, query: q.clean(), isStale: true}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.views[v] = true
	return v
}

// Await waits until the first list is complete. It returns an error if the table cannot be had.
func (f *Feed) Await(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.synced:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Object is a row for a caller of Each.
type Object struct {
	row     *row
	columns []Column
}

// Namespace returns the object's namespace.
func (o Object) Namespace() string { return o.row.namespace }

// Name returns the object's name.
func (o Object) Name() string { return o.row.name }

// Cell returns the text of the cell in a column, or "".
func (o Object) Cell(column string) string {
	for i, c := range o.columns {
		if c.Name == column {
			return o.row.cell(i)
		}
	}
	return ""
}

// Each calls a function for each object, in no order. The function must not call the feed.
func (f *Feed) Each(call func(Object)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, held := range f.rows {
		call(Object{held.row, f.columns})
	}
}

var (
	errTooMany    = errors.New("too many objects")
	errUnwatched  = errors.New("the objects cannot be watched")
	errWatchEnded = errors.New("the watch ended")
)

// run lists and watches until ctx ends, or the table cannot be had.
func (f *Feed) run(ctx context.Context) {
	failures := 0
	for {
		revision, err := f.list(ctx)
		if err == nil {
			failures = 0
			f.setState(Live)
			err = f.follow(ctx, revision)
		}
		if ctx.Err() != nil {
			return
		}
		if isFinal(err) {
			f.fail(err)
			return
		}
		wait := pollInterval
		if !errors.Is(err, errUnwatched) {
			failures++
			wait = f.backOff.after(failures)
			f.setState(Reconnecting)
		}
		if !sleep(ctx, wait) {
			return
		}
	}
}

// isFinal reports whether a request cannot succeed later without an action of the visitor.
func isFinal(err error) bool {
	return errors.Is(err, errTooMany) || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) ||
		apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotAcceptable(err)
}

func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// list reads all objects, and returns the revision of the list. Rows that are not in it are removed only when it is
// complete.
func (f *Feed) list(ctx context.Context) (string, error) {
	f.mu.Lock()
	f.lists++
	number := f.lists
	f.mu.Unlock()
	next := ""
	for {
		p, err := f.listPage(ctx, number, next)
		if err != nil {
			return "", fmt.Errorf("list %s: %w", f.kind.Resource, err)
		}
		if next = p.next; next == "" {
			f.removeUnlisted(number)
			return p.resourceVersion, nil
		}
	}
}

func (f *Feed) listPage(ctx context.Context, number int, next string) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	query := url.Values{"limit": {strconv.Itoa(pageSize)}, "includeObject": {"Metadata"}}
	if next != "" {
		query.Set("continue", next)
	}
	answer, err := f.get(ctx, f.kind.path()+"?"+query.Encode(), accept)
	if err != nil {
		return page{}, err
	}
	defer answer.Body.Close()
	var rows []*row
	p, err := readPage(answer.Body, func(r *row) error {
		if len(rows) >= maxRows { // a server that ignores the limit
			return errTooMany
		}
		rows = append(rows, r)
		return nil
	})
	if err != nil {
		return page{}, err
	}
	return p, f.add(p.columns, rows, number)
}

// add adds the rows of a list.
func (f *Feed) add(columns []Column, rows []*row, number int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(columns) > 0 && !slices.Equal(columns, f.columns) {
		f.columns = columns
		for v := range f.views { // filters and orders have indexes of columns
			v.isStale, v.pending = true, nil
		}
	}
	for _, r := range rows {
		f.put(r, number)
	}
	f.notify()
	if len(f.rows) > maxRows {
		return errTooMany
	}
	return nil
}

// put adds or replaces a row. The mutex is held.
func (f *Feed) put(r *row, number int) {
	held, ok := f.rows[r.key()]
	if ok && held.row.equals(r) {
		held.list = number
		f.rows[held.row.key()] = held
		return
	}
	if ok {
		delete(f.rows, r.key()) // the key is part of the former row's memory
	}
	f.rows[r.key()] = heldRow{r, number}
	for v := range f.views {
		v.record(change{held.row, r})
	}
}

// remove removes a row. The mutex is held.
func (f *Feed) remove(key string) {
	held, ok := f.rows[key]
	if !ok {
		return
	}
	delete(f.rows, key)
	for v := range f.views {
		v.record(change{before: held.row})
	}
}

// removeUnlisted removes the rows that are not in a complete list.
func (f *Feed) removeUnlisted(number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, held := range f.rows {
		if held.list != number {
			f.remove(key)
		}
	}
	f.finish()
	f.notify()
}

// notify reports a change to the views. The mutex is held.
func (f *Feed) notify() {
	for v := range f.views {
		v.changed()
	}
}

// finish ends the wait for the first list. The mutex is held.
func (f *Feed) finish() {
	if !f.isDone {
		f.isDone = true
		close(f.synced)
	}
}

// setState sets the state. A table whose first list is not complete is still loading.
func (f *Feed) setState(state State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != state && (f.isDone || state != Live) {
		f.state = state
		f.notify()
	}
}

func (f *Feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(err, errTooMany) {
		err = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("there are more than %d %s: select a namespace",
			maxRows, f.kind.Resource))
	}
	f.err, f.rows = err, map[string]heldRow{}
	f.finish()
	f.notify()
}

// follow watches from a revision until the objects must be listed again. It returns errUnwatched if they cannot be
// watched.
func (f *Feed) follow(ctx context.Context, revision string) error {
	failures := 0
	for {
		start := time.Now()
		err := f.watch(ctx, &revision)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			return err
		case apierrors.IsMethodNotSupported(err), apierrors.IsForbidden(err):
			return errUnwatched // the list was allowed
		case isFinal(err):
			return err
		case errors.Is(err, errWatchEnded) && time.Since(start) > f.backOff.first:
			failures = 0
			continue
		}
		failures++
		if failures > 1 { // the end of one watch is usual, such as when the API server restarts
			f.setState(Reconnecting)
		}
		if !sleep(ctx, f.backOff.after(failures)) {
			return ctx.Err()
		}
	}
}

// watch applies the changes of one watch, and updates the revision.
func (f *Feed) watch(ctx context.Context, revision *string) error {
	seconds := watchTime + rand.N(watchTime)
	ctx, cancel := context.WithTimeout(ctx, seconds+pageTimeout) // the server ends it earlier
	defer cancel()
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "includeObject": {"Metadata"},
		"resourceVersion": {*revision}, "timeoutSeconds": {strconv.Itoa(int(seconds.Seconds()))}}
	answer, err := f.get(ctx, f.kind.path()+"?"+query.Encode(), accept)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	f.setState(Live)
	d := json.NewDecoder(answer.Body)
	for {
		var e watchEvent
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return errWatchEnded
		} else if err != nil {
			return fmt.Errorf("read the watch of %s: %w", f.kind.Resource, err)
		}
		if e.Type == "ERROR" {
			return e.err()
		}
		rows, after, err := e.rows()
		if err != nil {
			return err
		}
		if err := f.apply(e.Type, rows); err != nil {
			return err
		}
		if after != "" {
			*revision = after
		}
	}
}

// apply applies an event.
func (f *Feed) apply(kind string, rows []*row) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rows {
		switch kind {
		case "ADDED", "MODIFIED":
			f.put(r, f.lists)
		case "DELETED":
			f.remove(r.key())
		}
	}
	if len(rows) > 0 {
		f.notify()
	}
	if len(f.rows) > maxRows {
		return errTooMany
	}
	return nil
}
