package cache

import (
	"sync"
	"time"
)

// Bell is rung whenever the cursors of one log may have something else to read, for as many of them as hear it.
type Bell struct {
	log     *eventLog
	ring    func()
	hearers int
	at      int // place in the log's bells
}

// Bell returns a bell of the cursor's log that nobody hears yet. ring must not wait; calls of it may come late.
func (c *Cursor) Bell(ring func()) *Bell { return &Bell{log: c.log, ring: ring} }

// Concerns says whether the bell is one of the cursor's log.
func (b *Bell) Concerns(c *Cursor) bool { return b.log == c.log }

// Hear adds one who hears the bell. What came before, he looks at by himself.
func (b *Bell) Hear() { b.log.bells.hear(b, 1) }

// Leave takes one of them away.
func (b *Bell) Leave() { b.log.bells.hear(b, -1) }

// bells are those who want to hear of what comes into a log. A few are called at once, always. A crowd, to which every
// event costs a wake-up, a record and a system call for each of its connections, is called at once after a rest; while
// events keep coming it hears of those that came within a moment together, and so costs a fraction for each. The price
// is that an event which hundreds are told of may wait that moment.
type bells struct {
	mu      sync.Mutex
	list    []*Bell // in no order
	hearers int
	rang    time.Time // when a crowd was last called
	due     bool      // whether it will be
	later   *time.Timer
}

const (
	// crowd is how many must want to hear of an event for it to wait for others. It is far above what controllers
	// and kubelets come to: a kubelet has a log of its own node's pods, and shares it with nobody.
	crowd = 256
	// moment is how long the first of the events waits that a crowd hears of together. At 20 events a second
	// two go as one, with room for some unevenness; to have three go as one, all would wait for a tenth of a second.
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

// ring calls everybody, a crowd perhaps a moment later.
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

// end calls everybody for the last time.
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
