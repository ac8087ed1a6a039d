package read

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
)

const (
	bookmarkInterval = time.Minute
	// stuckTimeout is how long a client may take no data. Then its watch ends, because the server does not queue events
	// for it.
	stuckTimeout = 30 * time.Second
	// chunkSize is how many bytes are collected before they are sent.
	chunkSize = 32 << 10
)

// watcher is one watch: a cursor over the kind's log, and how its events are sent.
type watcher struct {
	q              *request.Request
	selection      Selection
	rows           metav1.IncludeObjectPolicy
	wantsBookmarks bool
	out            http.ResponseWriter // of the response, or a WebSocket
	control        *http.ResponseController
	buf            []byte
	counts         *watchCounts
	hasSentEvent   bool // whether an event was sent; the first one of a table has the columns
	initialCount   int  // number of initial events
	watchStream
}

// Watch sends events until the client leaves, the timeout ends, or the log has dropped unread events.
func (s *Reads) Watch(q *request.Request) error {
	if err := q.Media.CheckStreamable(); err != nil {
		return err
	}
	o, err := q.ListOptions()
	if err != nil {
		return err
	}
	if q, err = q.WithWatchSelectors(); err != nil {
		return err
	}
	sel, err := Select(q)
	if err != nil {
		return err
	}
	w := &watcher{
		q: q, selection: sel, rows: q.IncludeObject(), out: q.Answer, control: http.NewResponseController(q.Answer),
		wantsBookmarks: o.AllowWatchBookmarks, counts: s.watches.countsOf(q),
	}
	initial := wantsInitialEvents(o)
	start, err := s.watchFrom(q, o.ResourceVersion, initial)
	if err != nil {
		return err
	}
	if err := sel.checkReadable(q); err != nil {
		return err
	}
	var snapshot *cache.Snapshot
	if initial {
		snapshot = q.Cache.Snapshot()
		start = max(start, snapshot.Revision)
	}
	cursor, err := q.Cache.Watch(sel.topic(q), start)
	if err != nil {
		return expiredRevision(err, start, max(1, q.Cache.Revision()))
	}
	defer cursor.Close()
	stream := func() {
		w.counts.watchers.Add(1)
		defer w.counts.watchers.Add(-1)
		if snapshot != nil {
			err := w.sendInitial(snapshot, start, o.SendInitialEvents != nil)
			s.reads.countsOf(q).initial.Add(int64(w.initialCount))
			if err != nil {
				return
			}
		}
		if w.flush() != nil {
			return
		}
		if q.Answer.Schema != nil {
			q.Answer.Schema.RecordExecution(time.Since(q.Answer.GrantedAt), true)
		}
		q.Answer.Release() // returns the seats: from here on the watch only waits
		w.stream(s, cursor, watchTimeout(o))
	}
	if wsstream.IsWebSocketRequest(q.HTTP) {
		return w.streamOverSocket(s, stream)
	}
	q.Answer.Header().Set("Content-Type", q.Media.WatchContentType())
	q.Answer.WriteHeader(http.StatusOK)
	stream()
	return nil
}

// watchFrom returns the revision from which the watch starts.
func (s *Reads) watchFrom(q *request.Request, version string, initial bool) (int64, error) {
	if version == "" || version == "0" {
		return s.WaitForVersion(q.HTTP.Context(), version)
	}
	revision, err := parseVersion(version)
	if err != nil {
		return 0, request.AsInternalError(err)
	}
	if initial {
		return s.WaitForVersion(q.HTTP.Context(), version)
	}
	// Another server has reached this revision, so it will arrive here soon.
	if _, err := s.waitForRevision(q.HTTP.Context(), revision); err != nil {
		return 0, err
	}
	return revision, nil
}

// wantsInitialEvents reports whether the watch begins with the existing objects.
func wantsInitialEvents(o metav1.ListOptions) bool {
	if o.SendInitialEvents != nil {
		return *o.SendInitialEvents
	}
	return o.ResourceVersion == "" || o.ResourceVersion == "0"
}

// watchTimeout returns how long a watch lasts. It is the client's timeoutSeconds, where negative values count as zero.
// Without one it is random.
func watchTimeout(o metav1.ListOptions) time.Duration {
	const maximum = math.MaxInt64 / int64(time.Second)
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds != 0 {
		return time.Duration(min(max(*o.TimeoutSeconds, 0), maximum)) * time.Second
	}
	// Random, so that watches that began together do not end together.
	return 30*time.Minute + rand.N(30*time.Minute)
}

// topic returns the narrowest log that has all events of a selection.
func (sel *Selection) topic(q *request.Request) cache.Topic {
	switch {
	case sel.name != "" && (!q.Served.Namespaced || sel.prefix != ""):
		return cache.Topic{Key: sel.prefix + sel.name}
	case sel.fieldIndex > 0:
		return cache.Topic{Field: sel.fieldIndex, Value: sel.value}
	case sel.prefix != "":
		return cache.Topic{Namespace: sel.prefix[:len(sel.prefix)-1]}
	}
	return cache.Topic{}
}

// sendInitial sends the existing objects.
func (w *watcher) sendInitial(snapshot *cache.Snapshot, revision int64, mark bool) error {
	var existing []*cache.Entry
	converts := w.q.NeedsConversion()
	var err error
	selected := w.selection.eachConverted(w.q, snapshot, "", func(e *cache.Entry) bool {
		if converts {
			existing = append(existing, e)
			return true
		}
		err = w.append(watch.Added, e)
		return err == nil
	})
	if selected == nil {
		selected = w.q.Convert(existing)
	}
	if selected != nil {
		w.failInitial(selected)
		return selected
	}
	for _, e := range existing {
		if err = w.append(watch.Added, e); err != nil {
			break
		}
	}
	if err == nil && mark && w.wantsBookmarks {
		before := len(w.buf)
		w.buf, err = w.q.Media.AppendBookmark(w.buf, w.q.Served, strconv.FormatInt(revision, 10), true)
		w.counts.addOne(len(w.buf) - before)
	}
	return err
}

// needsConversion reports whether events may have to be converted.
func (w *watcher) needsConversion() bool {
	return w.q.NeedsConversion() || w.selection.dependsOnVersion(w.q)
}

func (w *watcher) append(t watch.EventType, e *cache.Entry) error {
	before := len(w.buf)
	var err error
	if w.buf, err = w.encode(w.buf, t, e); err != nil {
		return err
	}
	w.initialCount++
	w.counts.addOne(len(w.buf) - before)
	if len(w.buf) > chunkSize {
		err = w.write()
	}
	return err
}

// encode appends an event.
func (w *watcher) encode(to []byte, t watch.EventType, e *cache.Entry) ([]byte, error) {
	to, err := w.q.Media.AppendEvent(to, t, w.q.Served, e, w.rows, !w.hasSentEvent)
	w.hasSentEvent = true
	return to, err
}

func (w *watcher) write() error {
	_ = w.control.SetWriteDeadline(time.Now().Add(stuckTimeout)) // not every connection has deadlines
	_, err := w.out.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}

func (w *watcher) flush() error {
	if len(w.buf) > 0 {
		if err := w.write(); err != nil {
			return err
		}
	}
	w.buf = nil
	if err := w.control.Flush(); err != nil {
		return err
	}
	// The deadline must not apply to writing the end of the stream, which may come much later.
	_ = w.control.SetWriteDeadline(time.Time{}) // not every connection has deadlines
	return nil
}

// failInitial ends a watch with an error during its initial events.
func (w *watcher) failInitial(cause error) {
	var err error
	w.buf, err = w.q.Media.AppendStatus(w.buf, request.StatusOf(cause))
	if err == nil {
		_ = w.flush() // the client also learns of it by the end of the stream
	}
}
