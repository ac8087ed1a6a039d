package cache

import (
	"sync"
	"time"
)

// Notifier is rung when the cursors of one log may have new events. It counts the cursors that use it, its hearers.
type Notifier struct {
	log         *eventLog
	notify      func()
	subscribers int
	index       int // index in the log's list of bells
}

// NewNotifier returns a bell of the cursor's log, without hearers. ring must not block, and may be called late.
func (c *Cursor) NewNotifier(ring func()) *Notifier { return &Notifier{log: c.log, notify: ring} }

// BelongsTo reports whether the bell belongs to the cursor's log.
func (b *Notifier) BelongsTo(c *Cursor) bool { return b.log == c.log }

// Subscribe adds a hearer. The hearer must check for earlier events itself.
func (b *Notifier) Subscribe() { b.log.notifiers.addSubscribers(b, 1) }

// Unsubscribe removes a hearer.
func (b *Notifier) Unsubscribe() { b.log.notifiers.addSubscribers(b, -1) }

// notifiers are the bells of one log, rung when events are appended. If there are few hearers, each append rings at
// once. With more than crowd hearers, each event costs a wake-up, a TLS record and a system call per connection. So
// after a pause they are called at once, and while events keep coming they are called once per moment. In exchange, an
// event for hundreds of watches may wait that long.
type notifiers struct {
	mu          sync.Mutex
	list        []*Notifier // unordered
	subscribers int
	notifiedAt  time.Time // when a crowd was last called
	isScheduled bool      // whether a delayed call is scheduled
	timer       *time.Timer
}

const (
	// batchThreshold is how many hearers there must be for calls to be combined. Controllers and kubelets stay far
	// below that: a kubelet has a log of its own node's pods, which it shares with no other client.
	batchThreshold = 256
	// batchInterval is how long the first of the events waits that a crowd is called for together. At 20 events a
	// second, two of them share a call, with room for some jitter. To combine three of them, all would have to wait for
	// a tenth of a second.
	batchInterval = 60 * time.Millisecond
)

func (b *notifiers) addSubscribers(bell *Notifier, more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers += more
	had := bell.subscribers > 0
	bell.subscribers += more
	switch has := bell.subscribers > 0; {
	case has && !had:
		bell.index = len(b.list)
		b.list = append(b.list, bell)
	case had && !has:
		last := len(b.list) - 1
		b.list[last].index = bell.index
		b.list[bell.index], b.list[last] = b.list[last], nil
		b.list = b.list[:last]
	}
}

// notify calls all notifiers in the list. More than batchThreshold subscribers are notified at most once per
// batchInterval.
func (b *notifiers) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscribers <= batchThreshold {
		b.notifyAll()
		return
	}
	switch now := time.Now(); {
	case b.isScheduled:
	case now.Sub(b.notifiedAt) >= batchInterval:
		b.notifiedAt = now
		b.notifyAll()
	case b.timer == nil:
		b.isScheduled, b.timer = true, time.AfterFunc(batchInterval, b.notifyLate)
	default:
		b.isScheduled = true
		b.timer.Reset(batchInterval)
	}
}

func (b *notifiers) notifyLate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isScheduled {
		b.isScheduled, b.notifiedAt = false, time.Now()
		b.notifyAll()
	}
}

// notifyEnd calls all bells for the last time.
func (b *notifiers) notifyEnd() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isScheduled = false; b.timer != nil {
		b.timer.Stop()
	}
	b.notifyAll()
}

func (b *notifiers) notifyAll() {
	for _, bell := range b.list {
		bell.notify()
	}
}
