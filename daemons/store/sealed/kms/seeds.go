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

	// unwrapAgain is how long the plugin is not asked again to decrypt a seed after a failure, however many values need
	// it.
	unwrapAgain = 2 * time.Second
)

// seeds caches the decrypted seeds by their encrypted form. Entries never expire, because the result never changes.
type seeds struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]*unwrapped
	turn  uint64
}

// unwrapped is a seed, or the reason why there is none. It is valid once done is closed.
type unwrapped struct {
	of   wrapped
	done chan struct{}
	seed *seed
	err  error
	at   time.Time // time of the failure
	used uint64    // when it was last used, in turns
}

// take returns the cached entry. If mine is true, the entry is new and the caller must fill it.
func (s *seeds) take(w wrapped, id [sha256.Size]byte, now time.Time) (u *unwrapped, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	if u = s.known[id]; u != nil {
		select {
		case <-u.done:
			if u.err != nil && now.Sub(u.at) >= unwrapAgain {
				u = nil
			}
		default:
		}
	}
	if u != nil {
		u.used = s.turn
		return u, false
	}
	u = &unwrapped{of: w, done: make(chan struct{}), used: s.turn}
	s.put(id, u)
	return u, true
}

// know caches a seed that this process created.
func (s *seeds) know(w wrapped, own *seed) {
	u := &unwrapped{of: w, done: make(chan struct{}), seed: own}
	close(u.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	u.used = s.turn
	s.put(identity(w), u)
}

func (s *seeds) put(id [sha256.Size]byte, u *unwrapped) {
	if s.known == nil {
		s.known = map[[sha256.Size]byte]*unwrapped{}
	}
	for len(s.known) >= maxSeeds {
		s.forgetOldest()
	}
	s.known[id] = u
}

func (s *seeds) forgetOldest() {
	var oldest [sha256.Size]byte
	least := s.turn + 1
	for id, u := range s.known {
		if u.used < least {
			oldest, least = id, u.used
		}
	}
	delete(s.known, oldest)
}

// fill completes an entry. It drops an entry whose error was not the plugin's, for example because the caller's context
// ended.
func (s *seeds) fill(id [sha256.Size]byte, u *unwrapped, made *seed, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.seed, u.err, u.at = made, err, now
	if err != nil && !errors.Is(err, ErrPlugin) && s.known[id] == u {
		delete(s.known, id)
	}
	close(u.done)
}

// failed removes some of the seeds that the plugin did not decrypt, and returns them for another attempt.
func (s *seeds) failed() (list []wrapped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.known {
		select {
		case <-u.done:
			if u.err != nil && len(list) < maxRetried {
				list = append(list, u.of)
				delete(s.known, id)
			}
		default:
		}
	}
	return list
}

// maxRetried is how many of these seeds are retried at each check of the plugin.
const maxRetried = 8

// unwrap returns a cached seed, or lets the plugin decrypt it. Concurrent callers share one call.
func (p *Plugin) unwrap(ctx context.Context, w wrapped) (*seed, error) {
	id := identity(w)
	for {
		u, mine := p.seeds.take(w, id, p.config.Now())
		if mine {
			secret, err := p.decrypt(ctx, w)
			var made *seed
			if err == nil {
				made, err = seedOf(w, secret)
			}
			p.seeds.fill(id, u, made, err, p.config.Now())
			if errors.Is(err, ErrPlugin) {
				p.soon()
			}
			return made, err
		}
		select {
		case <-u.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if gone := u.err != nil && !errors.Is(u.err, ErrPlugin) &&
			(errors.Is(u.err, context.Canceled) || errors.Is(u.err, context.DeadlineExceeded)); !gone {
			return u.seed, u.err
		} // the caller that asked has left, so try it here
	}
}
