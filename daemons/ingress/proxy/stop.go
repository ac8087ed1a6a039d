package proxy

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// begin counts a request as one that began before the drain, or since. What it returns is to be lowered at the
// request's end.
func (e *Engine) begin() *atomic.Int64 {
	count := &e.old
	if e.draining.Load() {
		count = &e.now
	}
	count.Add(1)
	return count
}

// Drain has clients go elsewhere, or connect again: every answer says that its connection ends. It returns when the
// requests that had begun before are answered, but for upgraded connections, or when ctx ends. Connections are still
// accepted, so that nobody waits for the requests of others.
func (e *Engine) Drain(ctx context.Context) {
	e.draining.Store(true)
	e.wait(ctx, &e.old)
	e.admitAll()
}

func (e *Engine) wait(ctx context.Context, count *atomic.Int64) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for count.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close ends what is left after the listeners were closed: connections between two requests at once, the others when
// they are answered, at the latest when ctx ends.
func (e *Engine) Close(ctx context.Context) {
	e.draining.Store(true)
	e.closing.Store(true)
	e.admitAll()
	e.mu.Lock()
	for c := range e.conns {
		if c.idle.Load() {
			_ = c.under.SetReadDeadline(time.Unix(1, 0))
		}
	}
	for nc := range e.tunnels {
		_ = nc.SetDeadline(time.Unix(1, 0))
	}
	e.mu.Unlock()
	_ = e.h2.Shutdown(ctx)
	done := make(chan struct{})
	go func() {
		e.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		e.mu.Lock()
		for c := range e.conns {
			_ = c.under.SetDeadline(time.Unix(1, 0))
		}
		e.mu.Unlock()
		_ = e.h2.Close()
		<-done
	}
	if e.log != nil {
		e.log.flush()
	}
}

// enterTunnel notes an upgraded connection, which ends only when its sides want it, or the engine is closed.
func (e *Engine) enterTunnel(nc net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing.Load() {
		return false
	}
	e.tunnels[nc] = struct{}{}
	return true
}

func (e *Engine) leaveTunnel(nc net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.tunnels, nc)
}
