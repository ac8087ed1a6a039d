package volume

import (
	"context"
	"fmt"
	"sync"
)

// turns give a name to one at a time.
type turns struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the turn is over
}

// try takes a name's turn when nobody has it.
func (t *turns) try(name string) bool { return t.wait(name) == nil }

// take waits for a name's turn.
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

// wait takes a name's turn, or returns when that of who has it is over.
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
