package cache

import (
	"errors"
	"sort"
	"sync"
	"sync/atomic"
)

// ErrExpired reports that the requested events are no longer in the log. The client must list again.
var ErrExpired = errors.New("the events have left the log")

// Event is one change of one object.
type Event struct {
	Revision      int64
	Entry         *Entry // nil when deleted or unreadable
	Prev          *Entry // nil when created; when unreadable, the last readable state, or an entry with only the name
	Err           error  // why the object cannot be read from this revision on
	WasUnreadable bool   // whether it was unreadable before

	isPacked  bool // whether it was copied next to other events
	deleted   atomic.Pointer[Entry]
	encodings sharedEncodings
}

// Deleted returns the object for watches that stop selecting it: its last state, with the event's revision.
func (e *Event) Deleted() *Entry {
	if left := e.deleted.Load(); left != nil {
		return left
	}
	e.deleted.CompareAndSwap(nil, e.Prev.withRevision(e.Revision))
	return e.deleted.Load()
}

// eventLog is a list of events, oldest first, that any number of cursors read. Its size is bounded. A cursor whose next
// event was dropped gets ErrExpired.
type eventLog struct {
	mu          sync.RWMutex
	first       uint64 // sequence number of events[0]
	minRevision int64  // the log has all events after this revision
	events      []*Event
	appended    chan struct{} // closed at the next append
	isEnded     bool
	bytes       int // estimated memory of the events

	notifiers notifiers // notified at each append
}

func newEventLog(floor int64) *eventLog {
	return &eventLog{minRevision: floor, appended: make(chan struct{})}
}

// eventCost is the estimated memory of an event besides the object's JSON, in bytes.
const eventCost = 768

// cost returns the estimated memory of an event, in bytes. It counts only the new object, because the previous event
// counts the old one.
func (e *Event) cost() int {
	switch {
	case e.Entry != nil:
		return eventCost + e.Entry.Size()
	case e.Prev != nil && e.Err == nil:
		return eventCost + e.Prev.Size()
	}
	return eventCost
}

// append adds events. It drops the oldest beyond room bytes, and those not newer than floor; a room of MaxInt sets no
// limit. Events are dropped in bulk only, so appending stays cheap. Readers keep the slices that they hold, since no
// element is ever overwritten.
func (l *eventLog) append(events []*Event, room int, floor int64) {
	l.add(events, room, floor)
	l.notifiers.notify()
}

func (l *eventLog) add(events []*Event, room int, floor int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, events...)
	for _, e := range events {
		l.bytes += e.cost()
	}
	drop, left := 0, l.bytes
	if left > room+room/4 {
		for drop < len(l.events) && left > room {
			left -= l.events[drop].cost()
			drop++
		}
		// Drop all events of a revision, or none.
		for drop > 0 && drop < len(l.events) && l.events[drop].Revision == l.events[drop-1].Revision {
			drop++
		}
	}
	l.drop(max(drop, l.countUntil(floor)))
	l.minRevision = max(l.minRevision, floor)
	close(l.appended)
	l.appended = make(chan struct{})
}

// countUntil returns the number of events that are not newer than a revision. The caller holds l.mu.
func (l *eventLog) countUntil(revision int64) int {
	return sort.Search(len(l.events), func(i int) bool { return l.events[i].Revision > revision })
}

// drop removes the oldest n events. The caller holds l.mu.
func (l *eventLog) drop(n int) {
	if n == 0 {
		return
	}
	for _, e := range l.events[:n] {
		l.bytes -= e.cost()
	}
	l.minRevision = max(l.minRevision, l.events[n-1].Revision)
	l.events = append(make([]*Event, 0, len(l.events)-n), l.events[n:]...)
	l.first += uint64(n)
}

// trim removes the events that are not newer than a revision.
func (l *eventLog) trim(revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(l.countUntil(revision))
}

// size returns the estimated memory of the events, in bytes.
func (l *eventLog) size() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.bytes
}

// end makes all cursors fail with ErrExpired after the last event, because the log will not continue.
func (l *eventLog) end() {
	l.mu.Lock()
	first := !l.isEnded
	if first {
		l.isEnded = true
		close(l.appended)
	}
	l.mu.Unlock()
	if first {
		l.notifiers.notifyEnd()
	}
}

// after returns the events with a higher revision.
func (l *eventLog) after(revision int64) ([]*Event, uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if revision < l.minRevision || l.isEnded {
		return nil, 0, ErrExpired
	}
	low, high := 0, len(l.events)
	for low < high {
		if mid := (low + high) / 2; l.events[mid].Revision <= revision {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return l.events[low:len(l.events):len(l.events)], l.first + uint64(low), nil
}

// Cursor is a position in a log. It belongs to one watch.
type Cursor struct {
	log   *eventLog
	next  uint64
	close func()
}

// Next returns the events since the last call. The channel is closed when there may be more.
func (c *Cursor) Next() ([]*Event, <-chan struct{}, error) {
	c.log.mu.RLock()
	defer c.log.mu.RUnlock()
	l := c.log
	if c.next < l.first {
		return nil, nil, ErrExpired
	}
	events := l.events[c.next-l.first : len(l.events) : len(l.events)]
	if l.isEnded && len(events) == 0 {
		return nil, nil, ErrExpired
	}
	c.next += uint64(len(events))
	return events, l.appended, nil
}

// HasEnded reports whether the log has ended, so that Next fails after the last event.
func (c *Cursor) HasEnded() bool {
	c.log.mu.RLock()
	defer c.log.mu.RUnlock()
	return c.log.isEnded
}

// Close releases the cursor's log, if it has no other reader.
func (c *Cursor) Close() {
	if c.close != nil {
		c.close()
	}
}
