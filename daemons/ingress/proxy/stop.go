package proxy

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// startRequest counts a request as started before or since the drain. The caller decrements the returned counter at the
// end of the request.
func (e *Engine) startRequest() *atomic.Int64 {
	count := &e.beforeDrain
	if e.draining.Load() {
		count = &e.sinceDrain
	}
	count.Add(1)
	return count
}

// Drain ends client connections gracefully: every response closes its connection. It returns when the requests that
// started before are complete, except upgraded connections, or when ctx ends. Connections are still accepted, so that
// new clients need not wait for running requests.
func (e *Engine) Drain(ctx context.Context) {
	e.draining.Store(true)
	e.waitForZero(ctx, &e.beforeDrain)
	e.admitAll()
}

func (e *Engine) waitForZero(ctx context.Context, count *atomic.Int64) {
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

// Close ends the remaining connections after the listeners were closed. Idle connections end at once. Others end when
// their request is complete, or when ctx ends.
func (e *Engine) Close(ctx context.Context) {
	e.draining.Store(true)
	e.closing.Store(true)
	e.admitAll()
	e.mu.Lock()
	for c := range e.conns {
		if c.idle.Load() {
			_ = c.accepted.SetReadDeadline(time.Unix(1, 0))
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
			_ = c.accepted.SetDeadline(time.Unix(1, 0))
		}
		e.mu.Unlock()
		_ = e.h2.Close()
		<-done
	}
	if e.log != nil {
		e.log.flush()
	}
}

// enterTunnel registers an upgraded connection. It ends when one of its sides ends it, or the engine is closed.
// enterTunnel returns false if the engine is already closing.
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
