package cache

import (
	"sync"
	"time"
)

// Notifier calls a function when the cursors of one log may have new events. It counts its subscribers, which are the
// cursors that use it.
type Notifier struct {
	log         *eventLog
	notify      func()
	subscribers int
	index       int // index in the log's list of notifiers
}

// NewNotifier returns a notifier of the cursor's log, without subscribers. notify must not block, and may be called
// late.
func (c *Cursor) NewNotifier(notify func()) *Notifier { return &Notifier{log: c.log, notify: notify} }

// BelongsTo reports whether the notifier belongs to the cursor's log.
func (b *Notifier) BelongsTo(c *Cursor) bool { return b.log == c.log }

// Subscribe adds a subscriber. The subscriber must check for earlier events itself.
func (b *Notifier) Subscribe() { b.log.notifiers.addSubscribers(b, 1) }

// Unsubscribe removes a subscriber.
func (b *Notifier) Unsubscribe() { b.log.notifiers.addSubscribers(b, -1) }

// notifiers are the notifiers of one log. They are called when events are appended: at once up to batchThreshold
// subscribers, and at most once per batchInterval above it. Each call costs a wake-up, a TLS record and a system call
// per connection. In exchange, an event for hundreds of watches may wait that long.
type notifiers struct {
	mu          sync.Mutex
	list        []*Notifier // unordered
	subscribers int
	notifiedAt  time.Time // time of the last call above batchThreshold
	isScheduled bool      // whether a delayed call is scheduled
	timer       *time.Timer
}

const (
	// batchThreshold is the number of subscribers above which calls are combined. Logs of controllers and kubelets stay
	// far below it: a kubelet has a log of its own node's pods, which it shares with no other client.
	batchThreshold = 256
	// batchInterval is the longest time that an event waits for others that share its call. At 20 events a second, two
	// share a call, with room for some jitter. Three could share a call only with an interval of 100 ms.
	batchInterval = 60 * time.Millisecond
)

func (b *notifiers) addSubscribers(n *Notifier, more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers += more
	hadSubscribers := n.subscribers > 0
	n.subscribers += more
	switch hasSubscribers := n.subscribers > 0; {
	case hasSubscribers && !hadSubscribers:
		n.index = len(b.list)
		b.list = append(b.list, n)
	case hadSubscribers && !hasSubscribers:
		last := len(b.list) - 1
		b.list[last].index = n.index
		b.list[n.index], b.list[last] = b.list[last], nil
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

// notifyEnd calls all notifiers for the last time.
func (b *notifiers) notifyEnd() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isScheduled = false; b.timer != nil {
		b.timer.Stop()
	}
	b.notifyAll()
}

func (b *notifiers) notifyAll() {
	for _, n := range b.list {
		n.notify()
	}
}
