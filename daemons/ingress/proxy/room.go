package proxy

import (
	"cmp"
	"slices"
)

// closedForRoom is what a connection's since is when it was closed to make room for another.
const closedForRoom = -1

// share of the bound is how much room is made at a time: finding who has waited longest means looking at all.
const share = 64

// enter notes a connection, once there is room for it. Where there are as many as may be, those that have waited
// longest for a request, or for the rest of its head, are closed. While none waits, all being in the middle of a
// request or upgraded, whoever accepts waits until one ends or is answered.
func (e *Engine) enter(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.limits.conns > 0 && !e.last && len(e.conns) >= e.limits.conns {
		e.wanting.Add(1) // seen by whoever begins to wait for a request from here on
		if len(e.conns)-e.leaving >= e.limits.conns {
			e.makeRoom(nil)
		}
		e.room.Wait()
		e.wanting.Add(-1)
	}
	c.since.Store(max(e.clock(), 1))
	e.conns[c] = struct{}{}
}

func (e *Engine) leave(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, there := e.conns[c]; !there {
		return
	}
	delete(e.conns, c)
	e.part(c)
	if c.since.Load() == closedForRoom {
		e.leaving--
	}
	e.room.Broadcast()
}

// makeRoom closes idle connections of one client, or of all clients if it is nil. It returns the number of closed
// connections. The caller holds mu.
func (e *Engine) makeRoom(of *client) (closed int) {
	type waiting struct {
		*conn
		since int64
	}
	var all []waiting
	for c := range e.conns {
		if since := c.since.Load(); since > 0 && (of == nil || c.of == of) {
			all = append(all, waiting{c, since})
		}
	}
	slices.SortFunc(all, func(a, b waiting) int { return cmp.Compare(a.since, b.since) })
	for _, w := range all[:min(len(all), max(e.limits.conns/share, 1))] {
		if !w.conn.since.CompareAndSwap(w.since, closedForRoom) {
			continue // its request came just now
		}
		e.leaving++
		closed++
		e.counters.closedForRoom.Add(1)
		_ = w.under.Close()
	}
	return closed
}

// waits notes that a connection waits for its next request.
func (c *conn) waits() {
	c.since.Store(max(c.e.clock(), 1))
	if c.e.wanting.Load() > 0 {
		c.e.mu.Lock()
		c.e.room.Broadcast()
		c.e.mu.Unlock()
	}
}

// busy notes that a request is there, which is answered. It returns false when the connection has been closed
// meanwhile: then nobody has seen the request, and the client may send it again.
func (c *conn) busy() bool {
	since := c.since.Load()
	return since != closedForRoom && c.since.CompareAndSwap(since, 0)
}

// admitAll has those that wait for room go on, and nobody wait from now on: the engine ends, and hardly anybody comes.
func (e *Engine) admitAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = true
	e.room.Broadcast()
}
