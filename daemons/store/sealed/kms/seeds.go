package kms

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"
)

const (
	// maxSeeds bounds what is remembered. There is one seed for each start of an API server and key of the plugin's
	// since what is stored was last written anew.
	maxSeeds = 4096

	// A plugin that has failed to decrypt a seed is not asked for the same one at once again, however many values need
	// it.
	unwrapAgain = 2 * time.Second
)

// seeds remembers what the plugin has decrypted, by what it was decrypted of. Nothing runs out: that has one meaning
// for ever.
type seeds struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]*unwrapped
	turn  uint64
}

// unwrapped is a seed, or why there is none, once done is closed.
type unwrapped struct {
	of   wrapped
	done chan struct{}
	seed *seed
	err  error
	at   time.Time // of the failure
	used uint64    // when, in turns
}

// take returns what is remembered, or a new place that the caller must fill.
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

// know remembers a seed that we have made.
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

// fill says what has become of a place. One that nobody's fault left empty is given up.
func (s *seeds) fill(id [sha256.Size]byte, u *unwrapped, made *seed, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.seed, u.err, u.at = made, err, now
	if err != nil && !errors.Is(err, ErrPlugin) && s.known[id] == u {
		delete(s.known, id)
	}
	close(u.done)
}

// failed takes out some of what the plugin did not decrypt, to be asked for again.
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

// maxRetried is how many seeds are asked for again each time that the plugin is looked at.
const maxRetried = 8

// unwrap returns a seed that is remembered, or has the plugin decrypt it: one call for all that want it.
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
		} // who asked went away: we ask
	}
}
