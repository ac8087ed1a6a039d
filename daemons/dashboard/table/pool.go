package table

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	maxFeeds = 32 // of one pool
	// linger is how long a feed without users continues, so that going back to a page is quick.
	linger = 30 * time.Second
)

// Pool has the feeds of one visitor. Subscribers of the same kind share a feed. Create it with NewPool, and call Stop.
type Pool struct {
	get     Getter
	backOff backOff
	linger  time.Duration

	mu        sync.Mutex
	feeds     map[Kind]*pooledFeed
	isStopped bool
	running   sync.WaitGroup
}

type pooledFeed struct {
	feed   *Feed
	cancel context.CancelFunc
	users  int
	timer  *time.Timer // stops the feed; nil while it has users
}

// NewPool returns a pool of a visitor whose requests get sends.
func NewPool(get Getter) *Pool {
	return &Pool{get: get, backOff: defaultBackOff(), linger: linger, feeds: map[Kind]*pooledFeed{}}
}

// Open returns the feed of a kind. The caller calls release when it no longer uses the feed.
func (p *Pool) Open(kind Kind) (feed *Feed, release func(), err error) {
	if !kind.isValid() {
		return nil, nil, apierrors.NewBadRequest("the version, the resource or the namespace is not a valid name")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isStopped {
		return nil, nil, apierrors.NewUnauthorized("the session is over")
	}
	shared := p.feeds[kind]
	if shared != nil && shared.feed.hasFailed() && shared.users == 0 { // the visitor tries again
		p.remove(kind, shared)
		shared = nil
	}
	if shared == nil {
		if len(p.feeds) >= maxFeeds && !p.removeUnused() {
			return nil, nil, apierrors.NewTooManyRequests("too many tables are open: close some pages", 1)
		}
		shared = p.start(kind)
	}
	if shared.timer != nil {
		shared.timer.Stop()
		shared.timer = nil
	}
	shared.users++
	return shared.feed, sync.OnceFunc(func() { p.release(kind, shared) }), nil
}

// start starts a feed. The mutex is held.
func (p *Pool) start(kind Kind) *pooledFeed {
	ctx, cancel := context.WithCancel(context.Background())
	started := &pooledFeed{feed: newFeed(kind, p.get, p.backOff), cancel: cancel}
	p.feeds[kind] = started
	p.running.Go(func() { started.feed.run(ctx) })
	return started
}

// remove stops a feed. The mutex is held.
func (p *Pool) remove(kind Kind, of *pooledFeed) {
	of.cancel()
	if p.feeds[kind] == of {
		delete(p.feeds, kind)
	}
}

// removeUnused stops one feed without users. It returns false if there is none. The mutex is held.
func (p *Pool) removeUnused() bool {
	for kind, one := range p.feeds {
		if one.users == 0 {
			p.remove(kind, one)
			return true
		}
	}
	return false
}

func (p *Pool) release(kind Kind, of *pooledFeed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of.users--; of.users > 0 || p.isStopped {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(p.linger, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if of.timer == timer {
			p.remove(kind, of)
		}
	})
	of.timer = timer
}

// Stop stops all feeds, and lets no further ones start. It does not wait.
func (p *Pool) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isStopped = true
	for kind, one := range p.feeds {
		if one.timer != nil {
			one.timer.Stop()
		}
		p.remove(kind, one)
	}
}

// Wait waits until all feeds have stopped. Call Stop first.
func (p *Pool) Wait() { p.running.Wait() }

func (f *Feed) hasFailed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err != nil
}
