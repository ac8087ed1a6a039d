package hollow

import (
	"context"
)

// Events implements cri.Runtime.
func (r *Runtime) Events(ctx context.Context, seen func(string)) error {
	if err := r.begin("Events"); err != nil {
		return err
	}
	news := make(chan string, 1024)
	r.mu.Lock()
	r.listeners[news] = true
	r.mu.Unlock()
	seen("")
	defer func() {
		r.mu.Lock()
		delete(r.listeners, news)
		r.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case uid := <-news:
			seen(uid)
		}
	}
}
