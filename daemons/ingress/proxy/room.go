package proxy

import (
	"cmp"
	"slices"
)

// closedForRoom is the value of a connection's since field after it was closed to make room for another.
const closedForRoom = -1

// share is the divisor of the connection limit for how many connections are closed at a time. Several are closed at
// once, because finding the longest idle ones means scanning all.
const share = 64

// enter registers a connection once there is room. At the limit, it closes the connections that have waited longest for
// a request or for the rest of a head. If none waits, because all are handling requests or were upgraded, enter blocks
// until one does.
func (e *Engine) enter(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.limits.conns > 0 && !e.last && len(e.conns) >= e.limits.conns {
		e.wanting.Add(1) // from now on, connections that become idle signal room
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
			continue // a request has just arrived
		}
		e.leaving++
		closed++
		e.counters.closedForRoom.Add(1)
		_ = w.under.Close()
	}
	return closed
}

// waits records that a connection waits for its next request.
func (c *conn) waits() {
	c.since.Store(max(c.e.clock(), 1))
	if c.e.wanting.Load() > 0 {
		c.e.mu.Lock()
		c.e.room.Broadcast()
		c.e.mu.Unlock()
	}
}

// busy records that a request has arrived. It returns false if the connection was closed in the meantime. The request
// was not processed then, so the client may repeat it.
func (c *conn) busy() bool {
	since := c.since.Load()
	return since != closedForRoom && c.since.CompareAndSwap(since, 0)
}

// admitAll releases all connections that wait for room, and lets none wait from now on, because the engine is closing.
func (e *Engine) admitAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = true
	e.room.Broadcast()
}
