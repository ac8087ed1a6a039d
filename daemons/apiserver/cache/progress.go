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

// reset sets the revision after a reload. It may be lower than before.
func (p *progress) reset(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached = revision
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *progress) revision() int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.reached
}

func (p *progress) state() (int64, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.reached, p.changed
}

// revisionReads lets readers share reads of the store's revision. A revision read serves the readers that arrived
// before it began. Readers that arrive later share the next revision read.
type revisionReads struct {
	mu         sync.Mutex
	isRunning  bool
	isIdle     bool          // whether run waits for a signal on wake
	wake       chan struct{} // has a capacity of one
	waiting    *revisionRead
	lastEnded  time.Time // when the last revision read ended
	lastServed int       // how many readers the last revision read served
}

type revisionRead struct {
	done        chan struct{}
	full        chan struct{} // closed when as many readers wait as the last revision read served
	readerCount int
	callbacks   []RevisionReader // readers that are called instead of waiting
	revision    int64
	err         error
}

// batchWait is how long a revision read waits for as many readers as the last one served. A revision read costs as much
// as several reads from the cache. Readers that were answered together are likely to send their next reads together,
// which are then handled together again. A single reader is not delayed.
const batchWait = 2 * time.Millisecond

// RevisionTimeout limits one revision read, whatever the timeouts of its readers.
const RevisionTimeout = 10 * time.Second

func (c *Cache) readRevision(ctx context.Context) (int64, error) {
	mine := c.revisionReads.join(c, nil)
	select {
	case <-mine.done:
		return mine.revision, mine.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// join adds a reader to the next revision read. If r is not nil, it is called with the result.
func (l *revisionReads) join(c *Cache, r RevisionReader) *revisionRead {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = &revisionRead{done: make(chan struct{}), full: make(chan struct{})}
	}
	mine := l.waiting
	if mine.readerCount++; mine.readerCount == max(l.lastServed, 1) {
		close(mine.full)
	}
	if r != nil {
		mine.callbacks = append(mine.callbacks, r)
	}
	switch {
	case !l.isRunning:
		l.isRunning, l.wake = true, make(chan struct{}, 1)
		go l.run(c)
	case l.isIdle:
		l.isIdle = false
		l.wake <- struct{}{}
	}
	return mine
}

// idleTimeout is how long an idle goroutine waits for readers. Reusing it saves growing a new stack.
const idleTimeout = 5 * time.Second

// waitForReaders waits for readers. It returns false if none arrives.
func (l *revisionReads) waitForReaders() bool {
	timer := time.NewTimer(idleTimeout)
	defer timer.Stop()
	select {
	case <-l.wake:
		return true
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isIdle { // a reader has just arrived
		<-l.wake
		return true
	}
	l.isRunning, l.isIdle = false, false
	return false
}

// run performs revision reads while readers wait. It ends some time after the last reader.
func (l *revisionReads) run(c *Cache) {
	for {
		l.mu.Lock()
		next := l.waiting
		if next == nil {
			l.isIdle = true
			l.mu.Unlock()
			if !l.waitForReaders() {
				return
			}
			continue
		}
		if early := batchWait - time.Since(l.lastEnded); early > 0 && next.readerCount < l.lastServed {
			l.mu.Unlock()
			timer := time.NewTimer(early)
			select {
			case <-next.full:
			case <-timer.C:
			}
			timer.Stop()
			l.mu.Lock()
		}
		l.waiting, l.lastServed = nil, next.readerCount
		l.mu.Unlock()
		reached := c.Reached()
		call, cancel := context.WithTimeout(context.Background(), RevisionTimeout)
		next.revision, next.err = c.store.Revision(call)
		cancel()
		if next.err == nil && next.revision < reached {
			next.err = errHistoryChanged
			c.requestReload()
		}
		l.mu.Lock()
		l.lastEnded = time.Now()
		l.mu.Unlock()
		close(next.done)
		if len(next.callbacks) > 0 {
			c.callReaders(next)
		}
	}
}

// RevisionReader is called, instead of waiting, when the cache has all writes that finished before its request.
type RevisionReader interface {
	// OnCurrent is called once, with nil if the cache is current, and otherwise with the error. It must not block.
	OnCurrent(cause error)
	// OnBatchDone is called after all readers that share the same read of the revision have been called.
	OnBatchDone()
}

// CallWhenCurrent is like WaitForCurrent, but calls r instead of waiting. The call comes within three RevisionTimeouts:
// one for a read of the revision in progress, one for the next read, and one for the cache to catch up.
func (c *Cache) CallWhenCurrent(r RevisionReader) { c.revisionReads.join(c, r) }

// callReaders calls the readers of a revision read once the cache has reached its revision.
func (c *Cache) callReaders(l *revisionRead) {
	if l.err == nil && c.Reached() < l.revision {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), RevisionTimeout)
			defer cancel()
			l.callAll(c.WaitFor(ctx, l.revision))
		}()
		return
	}
	l.callAll(l.err)
}

func (l *revisionRead) callAll(cause error) {
	for _, r := range l.callbacks {
		r.OnCurrent(cause)
	}
	for _, r := range l.callbacks {
		r.OnBatchDone()
	}
}
