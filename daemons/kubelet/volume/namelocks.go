package volume

import (
	"context"
	"fmt"
	"sync"
)

// nameLocks provides one lock per name.
type nameLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the turn ends
}

// tryLock takes a name's turn if it is free. It reports whether it did.
func (t *nameLocks) tryLock(name string) bool { return t.lockOrWait(name) == nil }

// lock waits for a name's turn and takes it.
func (t *nameLocks) lock(ctx context.Context, name string) error {
	for {
		done := t.lockOrWait(name)
		if done == nil {
			return nil
		}
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("wait until volume %s is not being changed: %w", name, ctx.Err())
		}
	}
}

// lockOrWait takes a name's turn and returns nil, or returns a channel that is closed when the current turn ends.
func (t *nameLocks) lockOrWait(name string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if done, taken := t.held[name]; taken {
		return done
	}
	if t.held == nil {
		t.held = map[string]chan struct{}{}
	}
	t.held[name] = make(chan struct{})
	return nil
}

// unlock ends a turn.
func (t *nameLocks) unlock(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.held[name])
	delete(t.held, name)
}
