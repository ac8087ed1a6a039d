package kms

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"
)

const (
	// maxSeeds is how many seeds are cached. There is one for each start of an API server and each key of the plugin,
	// since the stored values were last rewritten.
	maxSeeds = 4096

	// unwrapRetryAfter is how long the plugin is not asked again to decrypt a seed after a failure, however many values
	// need it.
	unwrapRetryAfter = 2 * time.Second
)

// seedCache caches the decrypted seeds by their encrypted form. Entries never expire, because the result never changes.
type seedCache struct {
	mu       sync.Mutex
	cached   map[[sha256.Size]byte]*unwrappedSeed
	useCount uint64
}

// unwrappedSeed is a seed, or the reason why there is none. It is valid once done is closed.
type unwrappedSeed struct {
	wrapped  wrapped
	done     chan struct{}
	seed     *keySeed
	err      error
	failedAt time.Time // time of the failure
	lastUsed uint64    // when it was last used, in turns
}

// getOrAdd returns the cached entry. If mine is true, the entry is new and the caller must fill it.
func (s *seedCache) getOrAdd(w wrapped, id [sha256.Size]byte, now time.Time) (u *unwrappedSeed, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useCount++
	if u = s.cached[id]; u != nil {
		select {
		case <-u.done:
			if u.err != nil && now.Sub(u.failedAt) >= unwrapRetryAfter {
				u = nil
			}
		default:
		}
	}
	if u != nil {
		u.lastUsed = s.useCount
		return u, false
	}
	u = &unwrappedSeed{wrapped: w, done: make(chan struct{}), lastUsed: s.useCount}
	s.addEntry(id, u)
	return u, true
}

// addOwn caches a seed that this process created.
func (s *seedCache) addOwn(w wrapped, own *keySeed) {
	u := &unwrappedSeed{wrapped: w, done: make(chan struct{}), seed: own}
	close(u.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useCount++
	u.lastUsed = s.useCount
	s.addEntry(seedID(w), u)
}

func (s *seedCache) addEntry(id [sha256.Size]byte, u *unwrappedSeed) {
	if s.cached == nil {
		s.cached = map[[sha256.Size]byte]*unwrappedSeed{}
	}
	for len(s.cached) >= maxSeeds {
		s.dropOldest()
	}
	s.cached[id] = u
}

func (s *seedCache) dropOldest() {
	var oldest [sha256.Size]byte
	minimum := s.useCount + 1
	for id, u := range s.cached {
		if u.lastUsed < minimum {
			oldest, minimum = id, u.lastUsed
		}
	}
	delete(s.cached, oldest)
}

// complete completes an entry. It drops an entry whose error was not the plugin's, for example because the caller's
// context ended.
func (s *seedCache) complete(id [sha256.Size]byte, u *unwrappedSeed, made *keySeed, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.seed, u.err, u.failedAt = made, err, now
	if err != nil && !errors.Is(err, ErrPlugin) && s.cached[id] == u {
		delete(s.cached, id)
	}
	close(u.done)
}

// takeFailed removes some of the seeds that the plugin did not decrypt, and returns them for another attempt.
func (s *seedCache) takeFailed() (list []wrapped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.cached {
		select {
		case <-u.done:
			if u.err != nil && len(list) < maxRetried {
				list = append(list, u.wrapped)
				delete(s.cached, id)
			}
		default:
		}
	}
	return list
}

// maxRetried is how many of these seeds are retried at each check of the plugin.
const maxRetried = 8

// unwrap returns a cached seed, or lets the plugin decrypt it. Concurrent callers share one call.
func (p *Plugin) unwrap(ctx context.Context, w wrapped) (*keySeed, error) {
	id := seedID(w)
	for {
		u, mine := p.seeds.getOrAdd(w, id, p.config.Now())
		if mine {
			secret, err := p.decrypt(ctx, w)
			var made *keySeed
			if err == nil {
				made, err = seedOf(w, secret)
			}
			p.seeds.complete(id, u, made, err, p.config.Now())
			if errors.Is(err, ErrPlugin) {
				p.scheduleCheck()
			}
			return made, err
		}
		select {
		case <-u.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if isGone := u.err != nil && !errors.Is(u.err, ErrPlugin) &&
			(errors.Is(u.err, context.Canceled) || errors.Is(u.err, context.DeadlineExceeded)); !isGone {
			return u.seed, u.err
		} // the caller that asked has left, so try it here
	}
}
