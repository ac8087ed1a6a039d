package read

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
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
)

// watchStream is the state of a watch after its initial events. The pump of its connection advances it, while the
// watch's handler waits for the end.
type watchStream struct {
	s           *Reads
	pump        *pump
	sink        sink
	isQueued    bool // in the pump's list; the pump's mutex guards queued and group
	group       *watchGroup
	index       int           // index in the group
	done        chan struct{} // closed when nothing more is to be sent
	sharesBytes bool          // whether watches with an equal want receive the same bytes
	key         unique.Handle[streamKey]

	mu         sync.Mutex
	cursor     *cache.Cursor
	pending    pendingEvents
	isFinished bool
}

// pendingEvents is what a watch still has to send.
type pendingEvents struct {
	events      []*cache.Event // read from the cursor and not sent yet
	unsent      []byte         // encoded, but not taken by the client yet
	stuckTimer  *time.Timer    // runs while unsent is not empty
	bookmarkDue bool           // whether a bookmark is to be sent
}

// stream sends events as they arrive, until the client leaves, the timeout ends, or the log has dropped unread events.
func (w *watcher) stream(s *Reads, cursor *cache.Cursor, timeout time.Duration) {
	w.s, w.cursor, w.done = s, cursor, make(chan struct{})
	w.pump, w.sink = pumpOf(w)
	w.sharesBytes = w.selection.hasNoSelectors() && w.q.Media.Shape != "Table" && !w.needsConversion()
	w.key = unique.Make(streamKey{w.q.Served.Version(), w.q.Media.EventMedia(), w.selection.prefix, w.rows})
	w.pump.join(w)
	defer w.pump.leave(w)
	end := time.NewTimer(timeout)
	defer end.Stop()
	bookmark := time.NewTicker(bookmarkInterval)
	defer bookmark.Stop()
	w.group.notifier.Subscribe()
	defer w.group.notifier.Unsubscribe()
	w.wake() // events may have arrived since the cursor was created
	for {
		select {
		case <-bookmark.C:
			if w.wantsBookmarks {
				w.mu.Lock()
				w.pending.bookmarkDue = true
				w.mu.Unlock()
				w.wake()
			}
			continue
		case <-end.C:
		case <-w.done:
		case <-s.shutdown:
		case <-w.q.HTTP.Context().Done():
		}
		w.close()
		return
	}
}

func (w *watcher) wake() { w.pump.queue(w) }

// close ends the watch. If an event was sent in part and the client is still connected, part sends the rest of it.
func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finishLocked()
	if len(w.pending.unsent) > 0 && w.q.HTTP.Context().Err() == nil {
		w.buf = w.pending.unsent
		_ = w.write() // the client also learns of it by the end of the stream
	}
}

func (w *watcher) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finishLocked()
}

func (w *watcher) finishLocked() {
	if !w.isFinished {
		w.isFinished = true
		close(w.done)
	}
	if w.pending.stuckTimer != nil {
		w.pending.stuckTimer.Stop()
	}
}

// sendPending sends pending events, as far as the client takes them. The pump calls it.
func (w *watcher) sendPending(last *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending.unsent) > 0 && !w.send(w.pending.unsent) {
		return
	}
	reached := int64(0)
	if w.pending.bookmarkDue {
		reached = w.s.cache.Reached()
	}
	if len(w.pending.events) == 0 {
		var err error
		if w.pending.events, _, err = w.cursor.Next(); err != nil {
			w.endWithError(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version, the log is at %d",
				w.s.cache.Reached())))
			return
		}
		if len(w.pending.events) == 0 {
			w.sendBookmark(reached)
		}
	}
	// Events that arrive meanwhile ring again.
	for len(w.pending.events) > 0 && !w.isFinished {
		data, n, err := last.encode(w, w.pending.events)
		if err != nil {
			w.endWithError(err)
			return
		}
		if w.pending.events = w.pending.events[n:]; !w.send(data) {
			return
		}
	}
	w.pending.events = nil
	if w.pending.bookmarkDue || w.cursor.HasEnded() {
		w.wake()
	}
}

// sendBookmark sends a bookmark if one is due. No event was pending when reached was read, so the watch is up to date
// with it.
func (w *watcher) sendBookmark(reached int64) {
	if !w.pending.bookmarkDue || reached == 0 {
		return
	}
	w.pending.bookmarkDue = false
	data, err := w.q.Media.AppendBookmark(nil, w.q.Served, strconv.FormatInt(reached, 10), false)
	if err != nil {
		w.finishLocked()
		return
	}
	w.counts.addOne(len(data))
	w.send(data)
}

// send sends data, and reports whether all of it was taken. What was not taken is kept in w.rest.
func (w *watcher) send(data []byte) bool {
	if w.isFinished || len(data) == 0 {
		return !w.isFinished
	}
	n, err := w.sink.TryWrite(data, w.wake)
	switch {
	case err != nil:
		w.pending.unsent = nil
		w.finishLocked()
		return false
	case n == len(data):
		if w.pending.unsent = nil; w.pending.stuckTimer != nil {
			w.pending.stuckTimer.Stop()
		}
		return true
	}
	w.pending.unsent = append(make([]byte, 0, len(data)-n), data[n:]...)
	switch {
	case w.pending.stuckTimer == nil:
		w.pending.stuckTimer = time.AfterFunc(stuckTimeout, w.endStuck)
	case n > 0:
		w.pending.stuckTimer.Reset(stuckTimeout)
	}
	return false
}

// endStuck ends the watch of a client that takes no data.
func (w *watcher) endStuck() {
	w.s.reads.countsOf(w.q).stuck.Add(1)
	w.finish()
}

// endWithError ends the watch with an error.
func (w *watcher) endWithError(cause error) {
	data, err := w.q.Media.AppendStatus(nil, request.StatusOf(cause))
	if err == nil {
		w.send(data) // the client also learns of it by the end of the stream
	}
	w.finishLocked()
}

// batch is the last encoded chunk. Watches with an equal want share it.
type batch struct {
	last          *cache.Event
	eventCount    int
	key           unique.Handle[streamKey]
	data          []byte
	encodedEvents int
	sizes         eventSizes
}

// streamKey holds everything that determines the bytes of a watch.
type streamKey struct {
	kind   schema.GroupVersionKind
	media  wire.Media
	prefix string
	rows   metav1.IncludeObjectPolicy
}

// encode returns the encoding of the first events, up to the size of a chunk, and the number of these events.
func (b *batch) encode(w *watcher, events []*cache.Event) ([]byte, int, error) {
	if w.sharesBytes && b.last == events[0] && b.eventCount == len(events) && b.key == w.key {
		w.counts.addSent(&b.sizes)
		return b.data, b.encodedEvents, nil
	}
	b.last, b.eventCount, b.key, b.sizes = nil, len(events), w.key, eventSizes{}
	data, taken := b.data[:0], 0
	converts := w.needsConversion()
	for _, e := range events {
		if err := w.selection.watchError(w.q, e); err != nil {
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
			if e, err = e.ConvertTo(w.q.HTTP.Context(), w.q.Served.Kind); err != nil {
				return nil, 0, err
			}
		}
		before := len(data)
		var err error
		if w.sharesBytes {
			var shared []byte
			shared, err = e.Encoding(w.key, func() ([]byte, error) { return w.appendEvent(nil, e) })
			data = append(data, shared...)
		} else {
			data, err = w.appendEvent(data, e)
		}
		if err != nil {
			return nil, 0, err
		}
		b.sizes.add(len(data) - before)
		if taken++; len(data) > chunkSize {
			break
		}
	}
	w.counts.addSent(&b.sizes)
	if b.data, b.encodedEvents = data, taken; w.sharesBytes {
		b.last = events[0]
	}
	return data, taken, nil
}

// appendEvent appends the event that this watch sends for e, if there is one.
func (w *watcher) appendEvent(to []byte, e *cache.Event) ([]byte, error) {
	switch before, after := w.selection.matches(e.Prev), w.selection.matches(e.Entry); {
	case before && after:
		return w.encode(to, watch.Modified, e.Entry)
	case after:
		return w.encode(to, watch.Added, e.Entry)
	case before:
		return w.encode(to, watch.Deleted, e.Deleted())
	}
	return to, nil
}

// release releases the encoded chunk after all watches have sent it.
func (b *batch) release() {
	if b.last = nil; cap(b.data) > 4*chunkSize {
		b.data = nil
	}
}
