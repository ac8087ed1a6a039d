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

// following is the part of a watch that goes on after its beginning: its connection's pump advances it,
// while its handler waits for the end.
type following struct {
	s      *Server
	pump   *pump
	sink   sink
	queued bool // in the pump's list, guarded by the pump as is the group
	group  *group
	place  int           // in the group
	over   chan struct{} // closed when there is nothing more to send
	alike  bool          // whether others that want the same get the same
	want   unique.Handle[want]

	mu       sync.Mutex
	cursor   *cache.Cursor
	events   []*cache.Event // that were read and not sent
	rest     []byte         // of what was encoded and not taken
	stuck    *time.Timer    // runs while there is a rest
	due      bool           // whether a bookmark is
	finished bool
}

// follow sends events as they come, until the client goes, time is up or the log has run away.
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
	w.ring() // something may have come since the cursor was made
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

// part ends the watch. An event that was begun is sent to its end, for a client that is still there.
func (w *watcher) part() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finishLocked()
	if len(w.rest) > 0 && w.q.http.Context().Err() == nil {
		w.buf = w.rest
		_ = w.write() // the client is told by the end of the stream as well
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

// advance sends what there is, as far as the client takes it. It is called by the pump.
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
	// What comes meanwhile rings again.
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

// mark sends a bookmark, if one is due: nothing was waiting when reached was read, so the watch is that far.
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

// offer sends data, and says whether all of it was taken. The rest is kept.
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

// giveUp ends the watch of a client that takes nothing.
func (w *watcher) giveUp() {
	w.s.observed.reads.of(w.q).stuck.Add(1)
	w.finish()
}

// stop ends the watch with an error.
func (w *watcher) stop(why error) {
	data, err := w.q.media.AppendStatus(nil, status(why))
	if err == nil {
		w.offer(data) // the client is told by the end of the stream as well
	}
	w.finishLocked()
}

// batch is what was encoded last: watches that want the same share it.
type batch struct {
	of     *cache.Event
	events int
	want   unique.Handle[want]
	data   []byte
	taken  int
	sizes  eventSizes
}

// want is what makes two watches' bytes the same.
type want struct {
	kind   schema.GroupVersionKind
	media  wire.Media
	prefix string
	rows   metav1.IncludeObjectPolicy
}

// encode returns the bytes of the first of the events, and how many those are: a chunk's worth.
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
				break // first what was before
			}
			return nil, 0, err
		}
		if e.Err != nil {
			taken++
			continue // others' loss
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

// tell appends what the watch is told of an event, which may be nothing.
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

// rest lets go of what was encoded when everybody has it.
func (b *batch) rest() {
	if b.of = nil; cap(b.data) > 4*chunk {
		b.data = nil
	}
}
