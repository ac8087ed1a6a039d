package cache

import (
	"errors"
	"sort"
	"sync"
	"sync/atomic"
)

// ErrExpired says that events asked for are no longer in the log: list again.
var ErrExpired = errors.New("the events have left the log")

// Event is one change of one object.
type Event struct {
	Revision int64
	Entry    *Entry // nil when deleted, or unreadable
	Prev     *Entry // nil when created; when unreadable, what was read last, or the name alone
	Err      error  // why the object cannot be read from this revision on
	Found    bool   // whether it could not be read before

	packed bool // whether it was moved close to others
	left   atomic.Pointer[Entry]
	frames frames
}

// Left is the object as it is shown to those for whom it is gone: its last state,
// under the event's revision.
func (e *Event) Left() *Entry {
	if left := e.left.Load(); left != nil {
		return left
	}
	e.left.CompareAndSwap(nil, e.Prev.at(e.Revision))
	return e.left.Load()
}

// eventLog is a list of events, oldest first and bounded by what they keep, that any number of cursors
// read. Writers append to it; a cursor that fell out of it is told so.
type eventLog struct {
	mu     sync.RWMutex
	first  uint64 // number of events[0]
	floor  int64  // events after this revision are all there
	events []*Event
	wake   chan struct{} // closed at the next append
	ended  bool
	bytes  int // about what the events keep

	bells bells // who wants to hear of appends
}

func newEventLog(floor int64) *eventLog {
	return &eventLog{floor: floor, wake: make(chan struct{})}
}

// eventCost is about what an event keeps besides the object's text, in bytes.
const eventCost = 768

// cost is what an event keeps: of two that follow each other the one's object is the other's former one.
func (e *Event) cost() int {
	switch {
	case e.Entry != nil:
		return eventCost + e.Entry.Size()
	case e.Prev != nil && e.Err == nil:
		return eventCost + e.Prev.Size()
	}
	return eventCost
}

// append adds events and drops the oldest of more than room bytes, and what is not newer than floor; a room of MaxInt
// leaves it to the floor. Dropped events are only let go in bulk, so appending stays cheap; readers keep what they
// hold, since no element is ever overwritten.
func (l *eventLog) append(events []*Event, room int, floor int64) {
	l.add(events, room, floor)
	l.bells.ring()
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
		// A revision leaves whole.
		for drop > 0 && drop < len(l.events) && l.events[drop].Revision == l.events[drop-1].Revision {
			drop++
		}
	}
	l.drop(max(drop, l.until(floor)))
	l.floor = max(l.floor, floor)
	close(l.wake)
	l.wake = make(chan struct{})
}

// until is how many events are not newer than a revision. The lock is held.
func (l *eventLog) until(revision int64) int {
	return sort.Search(len(l.events), func(i int) bool { return l.events[i].Revision > revision })
}

// drop lets the oldest events go. The lock is held.
func (l *eventLog) drop(n int) {
	if n == 0 {
		return
	}
	for _, e := range l.events[:n] {
		l.bytes -= e.cost()
	}
	l.floor = max(l.floor, l.events[n-1].Revision)
	l.events = append(make([]*Event, 0, len(l.events)-n), l.events[n:]...)
	l.first += uint64(n)
}

// trim lets go of events that are not newer than a revision.
func (l *eventLog) trim(revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(l.until(revision))
}

// size is about what the events keep, in bytes.
func (l *eventLog) size() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.bytes
}

// end tells all cursors that the log will not continue.
func (l *eventLog) end() {
	l.mu.Lock()
	first := !l.ended
	if first {
		l.ended = true
		close(l.wake)
	}
	l.mu.Unlock()
	if first {
		l.bells.end()
	}
}

// after returns the events with a higher revision.
func (l *eventLog) after(revision int64) ([]*Event, uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if revision < l.floor || l.ended {
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

// Cursor is a place in a log. It belongs to one watcher.
type Cursor struct {
	log   *eventLog
	next  uint64
	close func()
}

// Next returns the events since the last call and, when there are none, a channel
// that is closed when there may be some.
func (c *Cursor) Next() ([]*Event, <-chan struct{}, error) {
	c.log.mu.RLock()
	defer c.log.mu.RUnlock()
	l := c.log
	if c.next < l.first || l.ended {
		return nil, nil, ErrExpired
	}
	events := l.events[c.next-l.first : len(l.events) : len(l.events)]
	c.next += uint64(len(events))
	return events, l.wake, nil
}

// Close lets the cursor's log go if nobody else reads it.
func (c *Cursor) Close() {
	if c.close != nil {
		c.close()
	}
}
