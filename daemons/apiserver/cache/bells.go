package cache

import (
	"sync"
	"time"
)

// Bell is rung when the cursors of one log may have new events. It counts the cursors that use it, its hearers.
type Bell struct {
	log     *eventLog
	ring    func()
	hearers int
	at      int // index in the log's list of bells
}

// Bell returns a bell of the cursor's log, without hearers. ring must not block, and may be called late.
func (c *Cursor) Bell(ring func()) *Bell { return &Bell{log: c.log, ring: ring} }

// Concerns reports whether the bell belongs to the cursor's log.
func (b *Bell) Concerns(c *Cursor) bool { return b.log == c.log }

// Hear adds a hearer. The hearer must check for earlier events itself.
func (b *Bell) Hear() { b.log.bells.hear(b, 1) }

// Leave removes a hearer.
func (b *Bell) Leave() { b.log.bells.hear(b, -1) }

// bells are the bells of one log, rung when events are appended. If there are few hearers, each append rings at once.
// With more than crowd hearers, each event costs a wake-up, a TLS record and a system call per connection. So after a
// pause they are called at once, and while events keep coming they are called once per moment. In exchange, an event
// for hundreds of watches may wait that long.
type bells struct {
	mu      sync.Mutex
	list    []*Bell // unordered
	hearers int
	rang    time.Time // when a crowd was last called
	due     bool      // whether a delayed call is scheduled
	later   *time.Timer
}

const (
	// crowd is how many hearers there must be for calls to be combined. Controllers and kubelets stay far below that: a
	// kubelet has a log of its own node's pods, which it shares with no other client.
	crowd = 256
	// moment is how long the first of the events waits that a crowd is called for together. At 20 events a second, two
	// of them share a call, with room for some jitter. To combine three of them, all would have to wait for a tenth of
	// a second.
	moment = 60 * time.Millisecond
)

func (b *bells) hear(bell *Bell, more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hearers += more
	had := bell.hearers > 0
	bell.hearers += more
	switch has := bell.hearers > 0; {
	case has && !had:
		bell.at = len(b.list)
		b.list = append(b.list, bell)
	case had && !has:
		last := len(b.list) - 1
		b.list[last].at = bell.at
		b.list[bell.at], b.list[last] = b.list[last], nil
		b.list = b.list[:last]
	}
}

// ring calls all bells, a crowd perhaps a moment later.
func (b *bells) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hearers <= crowd {
		b.call()
		return
	}
	switch now := time.Now(); {
	case b.due:
	case now.Sub(b.rang) >= moment:
		b.rang = now
		b.call()
	case b.later == nil:
		b.due, b.later = true, time.AfterFunc(moment, b.ringLate)
	default:
		b.due = true
		b.later.Reset(moment)
	}
}

func (b *bells) ringLate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due {
		b.due, b.rang = false, time.Now()
		b.call()
	}
}

// end calls all bells for the last time.
func (b *bells) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due = false; b.later != nil {
		b.later.Stop()
	}
	b.call()
}

func (b *bells) call() {
	for _, bell := range b.list {
		bell.ring()
	}
}
