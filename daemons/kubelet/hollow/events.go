package hollow

import (
	"context"
)

// eventListener is one caller of Events. It holds the changed pods that were not delivered yet, each once.
type eventListener struct {
	changed map[string]bool // by pod UID; guarded by the runtime's mu
	wake    chan struct{}
}

// Events implements cri.Runtime.
func (r *Runtime) Events(ctx context.Context, seen func(string)) error {
	if err := r.countCall("Events"); err != nil {
		return err
	}
	l := &eventListener{changed: map[string]bool{}, wake: make(chan struct{}, 1)}
	r.mu.Lock()
	r.listeners[l] = true
	r.mu.Unlock()
	seen("")
	defer func() {
		r.mu.Lock()
		delete(r.listeners, l)
		r.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		}
		r.mu.Lock()
		news := l.changed
		l.changed = map[string]bool{}
		r.mu.Unlock()
		for uid := range news {
			seen(uid)
		}
	}
}
