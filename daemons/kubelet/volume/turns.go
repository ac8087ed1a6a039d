package volume

import (
	"context"
	"fmt"
	"sync"
)

// turns provides one lock per name.
type turns struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the turn ends
}

// try takes a name's turn if it is free. It reports whether it did.
func (t *turns) try(name string) bool { return t.wait(name) == nil }

// take waits for a name's turn and takes it.
func (t *turns) take(ctx context.Context, name string) error {
	for {
		over := t.wait(name)
		if over == nil {
			return nil
		}
		select {
		case <-over:
		case <-ctx.Done():
			return fmt.Errorf("wait until volume %s is not being changed: %w", name, ctx.Err())
		}
	}
}

// wait takes a name's turn and returns nil, or returns a channel that is closed when the current turn ends.
func (t *turns) wait(name string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if over, taken := t.held[name]; taken {
		return over
	}
	if t.held == nil {
		t.held = map[string]chan struct{}{}
	}
	t.held[name] = make(chan struct{})
	return nil
}

// give ends a turn.
func (t *turns) give(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.held[name])
	delete(t.held, name)
}
