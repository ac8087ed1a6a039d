package cache

import (
	"context"
	"sync"
	"time"
)

// progress is the revision that the cache has reached, and a signal for those that wait for a later one.
type progress struct {
	mu      sync.RWMutex
	reached int64
	changed chan struct{} // nil while there is no waiter
}

func (p *progress) reach(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if revision > p.reached {
		p.reached = revision
		if p.changed != nil {
			close(p.changed)
			p.changed = nil
		}
	}
}

// begin sets the revision after a reload. It may be lower than before.
func (p *progress) begin(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached = revision
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *progress) now() int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.reached
}

func (p *progress) look() (int64, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.reached, p.changed
}

// looks lets readers share reads of the store's revision. Such a read, a look, serves the readers that arrived before
// it began. Readers that arrive later share the next one.
type looks struct {
	mu      sync.Mutex
	running bool
	idle    bool          // whether run waits for a signal on wake
	wake    chan struct{} // has a capacity of one
	waiting *look
	ended   time.Time // when the last look ended
	served  int       // how many readers the last look served
}

type look struct {
	done     chan struct{}
	enough   chan struct{} // closed when as many readers wait as the last look served
	readers  int
	told     []Reader // readers that are called instead of waiting
	revision int64
	err      error
}

// gather is how long a look waits for as many readers as the last one served. A look costs as much as several reads.
// Readers that were answered together are likely to send their next reads together, which are then handled together
// again. A single reader is not delayed.
const gather = 2 * time.Millisecond

// LookTimeout limits one look, whatever the timeouts of its readers.
const LookTimeout = 10 * time.Second

func (c *Cache) look(ctx context.Context) (int64, error) {
	mine := c.looks.join(c, nil)
	select {
	case <-mine.done:
		return mine.revision, mine.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// join adds a reader to the next look. If r is not nil, it is called with the result.
func (l *looks) join(c *Cache, r Reader) *look {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = &look{done: make(chan struct{}), enough: make(chan struct{})}
	}
	mine := l.waiting
	if mine.readers++; mine.readers == max(l.served, 1) {
		close(mine.enough)
	}
	if r != nil {
		mine.told = append(mine.told, r)
	}
	switch {
	case !l.running:
		l.running, l.wake = true, make(chan struct{}, 1)
		go l.run(c)
	case l.idle:
		l.idle = false
		l.wake <- struct{}{}
	}
	return mine
}

// linger is how long an idle goroutine waits for readers. Reusing it saves growing a new stack.
const linger = 5 * time.Second

// rest waits for readers. It returns false if none arrives.
func (l *looks) rest() bool {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-l.wake:
		return true
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.idle { // a reader has just arrived
		<-l.wake
		return true
	}
	l.running, l.idle = false, false
	return false
}

// run performs looks while readers wait. It ends some time after the last reader.
func (l *looks) run(c *Cache) {
	for {
		l.mu.Lock()
		next := l.waiting
		if next == nil {
			l.idle = true
			l.mu.Unlock()
			if !l.rest() {
				return
			}
			continue
		}
		if early := gather - time.Since(l.ended); early > 0 && next.readers < l.served {
			l.mu.Unlock()
			timer := time.NewTimer(early)
			select {
			case <-next.enough:
			case <-timer.C:
			}
			timer.Stop()
			l.mu.Lock()
		}
		l.waiting, l.served = nil, next.readers
		l.mu.Unlock()
		reached := c.Reached()
		call, cancel := context.WithTimeout(context.Background(), LookTimeout)
		next.revision, next.err = c.store.Revision(call)
		cancel()
		if next.err == nil && next.revision < reached {
			next.err = errWentBack
			c.again()
		}
		l.mu.Lock()
		l.ended = time.Now()
		l.mu.Unlock()
		close(next.done)
		if len(next.told) > 0 {
			c.tell(next)
		}
	}
}

// Reader is called, instead of waiting, when the cache has all writes that finished before its request.
type Reader interface {
	// Current is called once. why is nil if the cache is current, and otherwise the reason. Current must not block.
	Current(why error)
	// Others is called after the other readers of the same look have been called, too.
	Others()
}

// Tell is like Current, but calls r instead of waiting. The call comes within three LookTimeouts: one for a look in
// progress, one for its own, and one for the cache to catch up.
func (c *Cache) Tell(r Reader) { c.looks.join(c, r) }

// tell calls the readers of a look once the cache has reached its revision.
func (c *Cache) tell(l *look) {
	if l.err == nil && c.Reached() < l.revision {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), LookTimeout)
			defer cancel()
			l.tell(c.WaitFor(ctx, l.revision))
		}()
		return
	}
	l.tell(l.err)
}

func (l *look) tell(why error) {
	for _, r := range l.told {
		r.Current(why)
	}
	for _, r := range l.told {
		r.Others()
	}
}
