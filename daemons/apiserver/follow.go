package apiserver

import (
	"fmt"
	"strconv"
	"sync"
	"time"
	"unique"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/wire"
)

// following is the state of a watch after its initial events. The pump of its connection advances it, while the watch's
// handler waits for the end.
type following struct {
	s      *Server
	pump   *pump
	sink   sink
	queued bool // in the pump's list; the pump's mutex guards queued and group
	group  *group
	place  int           // index in the group
	over   chan struct{} // closed when nothing more is to be sent
	alike  bool          // whether watches with an equal want receive the same bytes
	want   unique.Handle[want]

	mu       sync.Mutex
	cursor   *cache.Cursor
	events   []*cache.Event // read from the cursor and not sent yet
	rest     []byte         // encoded, but not taken by the client yet
	stuck    *time.Timer    // runs while rest is not empty
	due      bool           // whether a bookmark is to be sent
	finished bool
}

// follow sends events as they arrive, until the client leaves, the timeout ends, or the log has dropped unread events.
func (w *watcher) follow(s *Server, cursor *cache.Cursor, timeout time.Duration) {
	w.s, w.cursor, w.over = s, cursor, make(chan struct{})
	w.pump, w.sink = pumpOf(w)
	w.alike = w.sel.simple() && w.q.media.As != "Table" && !w.converts()
	w.want = unique.Make(want{w.q.served.Version(), w.q.media.Events(), w.sel.prefix, w.rows})
	w.pump.join(w)
	defer w.pump.leave(w)
	end := time.NewTimer(timeout)
	defer end.Stop()
	bookmark := time.NewTicker(bookmarkEvery)
	defer bookmark.Stop()
	w.group.bell.Hear()
	defer w.group.bell.Leave()
	w.ring() // events may have arrived since the cursor was created
	for {
		select {
		case <-bookmark.C:
			if w.bookmarks {
				w.mu.Lock()
				w.due = true
				w.mu.Unlock()
				w.ring()
			}
			continue
		case <-end.C:
		case <-w.over:
		case <-s.shutdown:
		case <-w.q.http.Context().Done():
		}
		w.part()
		return
	}
}

func (w *watcher) ring() { w.pump.ring(w) }

// part ends the watch. If an event was sent in part and the client is still connected, part sends the rest of it.
func (w *watcher) part() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finishLocked()
	if len(w.rest) > 0 && w.q.http.Context().Err() == nil {
		w.buf = w.rest
		_ = w.write() // the client also learns of it by the end of the stream
	}
}

func (w *watcher) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finishLocked()
}

func (w *watcher) finishLocked() {
	if !w.finished {
		w.finished = true
		close(w.over)
	}
	if w.stuck != nil {
		w.stuck.Stop()
	}
}

// advance sends pending events, as far as the client takes them. The pump calls it.
func (w *watcher) advance(last *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 && !w.offer(w.rest) {
		return
	}
	reached := int64(0)
	if w.due {
		reached = w.s.cache.Reached()
	}
	if len(w.events) == 0 {
		var err error
		if w.events, _, err = w.cursor.Next(); err != nil {
			w.stop(
				apierrors.NewResourceExpired(
					fmt.Sprintf("too old resource version, the log is at %d", w.s.cache.Reached()),
				),
			)
			return
		}
		if len(w.events) == 0 {
			w.mark(reached)
		}
	}
	// Events that arrive meanwhile ring again.
	for len(w.events) > 0 && !w.finished {
		data, n, err := last.encode(w, w.events)
		if err != nil {
			w.stop(err)
			return
		}
		if w.events = w.events[n:]; !w.offer(data) {
			return
		}
	}
	w.events = nil
	if w.due {
		w.ring()
	}
}

// mark sends a bookmark if one is due. No event was pending when reached was read, so the watch is up to date with it.
func (w *watcher) mark(reached int64) {
	if !w.due || reached == 0 {
		return
	}
	w.due = false
	data, err := w.q.media.AppendBookmark(nil, w.q.served, strconv.FormatInt(reached, 10), false)
	if err != nil {
		w.finishLocked()
		return
	}
	w.counts.sentOne(len(data))
	w.offer(data)
}

// offer sends data, and reports whether all of it was taken. What was not taken is kept in w.rest.
func (w *watcher) offer(data []byte) bool {
	if w.finished || len(data) == 0 {
		return !w.finished
	}
	n, err := w.sink.Offer(data, w.ring)
	switch {
	case err != nil:
		w.rest = nil
		w.finishLocked()
		return false
	case n == len(data):
		if w.rest = nil; w.stuck != nil {
			w.stuck.Stop()
		}
		return true
	}
	w.rest = append(make([]byte, 0, len(data)-n), data[n:]...)
	switch {
	case w.stuck == nil:
		w.stuck = time.AfterFunc(stuckAfter, w.giveUp)
	case n > 0:
		w.stuck.Reset(stuckAfter)
	}
	return false
}

// giveUp ends the watch of a client that takes no data.
func (w *watcher) giveUp() {
	w.s.observed.reads.of(w.q).stuck.Add(1)
	w.finish()
}

// stop ends the watch with an error.
func (w *watcher) stop(why error) {
	data, err := w.q.media.AppendStatus(nil, status(why))
	if err == nil {
		w.offer(data) // the client also learns of it by the end of the stream
	}
	w.finishLocked()
}

// batch is the last encoded chunk. Watches with an equal want share it.
type batch struct {
	of     *cache.Event
	events int
	want   unique.Handle[want]
	data   []byte
	taken  int
	sizes  eventSizes
}

// want holds everything that determines the bytes of a watch.
type want struct {
	kind   schema.GroupVersionKind
	media  wire.Media
	prefix string
	rows   metav1.IncludeObjectPolicy
}

// encode returns the encoding of the first events, up to the size of a chunk, and the number of these events.
func (b *batch) encode(w *watcher, events []*cache.Event) ([]byte, int, error) {
	if w.alike && b.of == events[0] && b.events == len(events) && b.want == w.want {
		w.counts.sent(&b.sizes)
		return b.data, b.taken, nil
	}
	b.of, b.events, b.want, b.sizes = nil, len(events), w.want, eventSizes{}
	data, taken := b.data[:0], 0
	converts := w.converts()
	for _, e := range events {
		if err := w.sel.lost(w.q, e); err != nil {
			if taken > 0 {
				break // send the preceding events first
			}
			return nil, 0, err
		}
		if e.Err != nil {
			taken++
			continue // the lost object is not selected by this watch
		}
		if converts {
			var err error
			if e, err = e.In(w.q.http.Context(), w.q.served.Kind); err != nil {
				return nil, 0, err
			}
		}
		before := len(data)
		var err error
		if w.alike {
			var shared []byte
			shared, err = e.Frame(w.want, func() ([]byte, error) { return w.tell(nil, e) })
			data = append(data, shared...)
		} else {
			data, err = w.tell(data, e)
		}
		if err != nil {
			return nil, 0, err
		}
		b.sizes.add(len(data) - before)
		if taken++; len(data) > chunk {
			break
		}
	}
	w.counts.sent(&b.sizes)
	if b.data, b.taken = data, taken; w.alike {
		b.of = events[0]
	}
	return data, taken, nil
}

// tell appends the event that this watch sends for e, if there is one.
func (w *watcher) tell(to []byte, e *cache.Event) ([]byte, error) {
	switch before, after := w.sel.matches(e.Prev), w.sel.matches(e.Entry); {
	case before && after:
		return w.encode(to, watch.Modified, e.Entry)
	case after:
		return w.encode(to, watch.Added, e.Entry)
	case before:
		return w.encode(to, watch.Deleted, e.Left())
	}
	return to, nil
}

// rest releases the encoded chunk after all watches have sent it.
func (b *batch) rest() {
	if b.of = nil; cap(b.data) > 4*chunk {
		b.data = nil
	}
}
