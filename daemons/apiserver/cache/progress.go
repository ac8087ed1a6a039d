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
	changed chan struct{}
}

func (p *progress) reach(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if revision > p.reached {
		p.reached = revision
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

func (p *progress) now() int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.reached
}

func (p *progress) look() (int64, <-chan struct{}) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.reached, p.changed
}

// looks lets readers share their looks at the store's revision. A look serves those
// who came before it began; who comes later shares the next one.
type looks struct {
	mu      sync.Mutex
	running bool
	waiting *look
	began   time.Time // when the last look did
	served  int       // how many it served
}

type look struct {
	done     chan struct{}
	readers  int
	revision int64
	err      error
}

// apart is how far apart looks begin while readers are many: a look costs as much as several reads, and the more wait
// for it the less it costs each. Who reads alone is not held up.
const apart = time.Millisecond

// lookTimeout bounds one look, whoever waits for it.
const lookTimeout = 10 * time.Second

func (l *looks) take(ctx context.Context, revision func(context.Context) (int64, error)) (int64, error) {
	l.mu.Lock()
	if l.waiting == nil {
		l.waiting = &look{done: make(chan struct{})}
	}
	mine := l.waiting
	mine.readers++
	if !l.running {
		l.running = true
		go l.run(context.WithoutCancel(ctx), revision)
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		return mine.revision, mine.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// run looks for as long as somebody waits. It ends by itself within lookTimeout of
// the last reader.
func (l *looks) run(ctx context.Context, revision func(context.Context) (int64, error)) {
	for {
		l.mu.Lock()
		if l.waiting == nil {
			l.running = false
			l.mu.Unlock()
			return
		}
		if early := apart - time.Since(l.began); early > 0 && l.served > 1 {
			l.mu.Unlock()
			time.Sleep(early)
			l.mu.Lock()
		}
		next := l.waiting
		l.waiting, l.began, l.served = nil, time.Now(), next.readers
		l.mu.Unlock()
		call, cancel := context.WithTimeout(ctx, lookTimeout)
		next.revision, next.err = revision(call)
		cancel()
		close(next.done)
	}
}
