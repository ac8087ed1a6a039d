package cache

import (
	"context"
	"sync"
	"time"
)

// progress is how far the cache has come, and who waits for it to come further.
type progress struct {
	mu      sync.RWMutex
	reached int64
	changed chan struct{} // nil: nobody waits
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

// begin is reach of what was loaded anew, which may be less than what was reached before.
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

// looks lets readers share their looks at the store's revision. A look serves those
// who came before it began; who comes later shares the next one.
type looks struct {
	mu      sync.Mutex
	running bool
	idle    bool          // whether run waits to be woken
	wake    chan struct{} // holds one
	waiting *look
	ended   time.Time // when the last look did
	served  int       // how many it served
}

type look struct {
	done     chan struct{}
	enough   chan struct{} // closed when as many wait as the look before served
	readers  int
	told     []Reader // those that do not wait
	revision int64
	err      error
}

// gather is how long a look waits for as many readers as the one before has served: it costs as much as several reads,
// and readers that were answered together are likely to come again together, to be read from, decided and answered
// together once more. Who reads alone is not held up.
const gather = 2 * time.Millisecond

// LookTimeout bounds one look, whoever waits for it.
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

// join has the next look serve one more, and r told of it unless it is nil.
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

// linger is how long a goroutine that looks waits for somebody to look for: its stack has grown already.
const linger = 5 * time.Second

// rest waits for somebody to look for; false if nobody comes.
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
	if !l.idle { // somebody came just now
		<-l.wake
		return true
	}
	l.running, l.idle = false, false
	return false
}

// run looks for as long as somebody waits, and ends by itself some time after the last reader.
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

// Reader is told, rather than waits, that the cache has seen all writes that were done before it asked.
type Reader interface {
	// Current is told once; why is the reason when it is not so. It does not wait for anything.
	Current(why error)
	// Others says that those who asked about the same time have been told, too.
	Others()
}

// Tell is Current for who does not wait. It is told within three LookTimeouts: of a look under way, of its own, and of
// what the cache then has to catch up with.
func (c *Cache) Tell(r Reader) { c.looks.join(c, r) }

// tell tells readers of a look, once the cache has come as far.
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
