package proxy

import (
	"cmp"
	"slices"
)

// closedForRoom is the value of a connection's since field after it was closed to make room for another.
const closedForRoom = -1

// closeDivisor is the divisor of the connection limit for how many connections are closed at a time. Several are closed
// at once, because finding the longest idle ones means scanning all.
const closeDivisor = 64

// register registers a connection once there is room. At the limit, it closes the connections that have waited longest
// for a request or for the rest of a head. If no connection waits, because all are handling requests or were upgraded,
// register blocks until one waits.
func (e *Engine) register(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.limits.conns > 0 && !e.isAdmittingAll && len(e.conns) >= e.limits.conns {
		e.roomWaiters.Add(1) // from now on, connections that become idle signal room
		if len(e.conns)-e.evicted >= e.limits.conns {
			e.makeRoom(nil)
		}
		e.room.Wait()
		e.roomWaiters.Add(-1)
	}
	c.waitingSince.Store(max(e.clock(), 1))
	e.conns[c] = struct{}{}
}

func (e *Engine) unregister(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.conns[c]; !ok {
		return
	}
	delete(e.conns, c)
	e.uncountClient(c)
	if c.waitingSince.Load() == closedForRoom {
		e.evicted--
	}
	e.room.Broadcast()
}

// makeRoom closes idle connections of one client, or of all clients if it is nil. It returns the number of closed
// connections. The caller holds mu.
func (e *Engine) makeRoom(of *clientCounts) (closed int) {
	type waiting struct {
		*conn
		since int64
	}
	var all []waiting
	for c := range e.conns {
		if since := c.waitingSince.Load(); since > 0 && (of == nil || c.counts == of) {
			all = append(all, waiting{c, since})
		}
	}
	slices.SortFunc(all, func(a, b waiting) int { return cmp.Compare(a.since, b.since) })
	for _, w := range all[:min(len(all), max(e.limits.conns/closeDivisor, 1))] {
		if !w.conn.waitingSince.CompareAndSwap(w.since, closedForRoom) {
			continue // a request has just arrived
		}
		e.evicted++
		closed++
		e.counters.closedForRoom.Add(1)
		_ = w.accepted.Close()
	}
	return closed
}

// markIdle records that a connection waits for its next request.
func (c *conn) markIdle() {
	c.waitingSince.Store(max(c.e.clock(), 1))
	if c.e.roomWaiters.Load() > 0 {
		c.e.mu.Lock()
		c.e.room.Broadcast()
		c.e.mu.Unlock()
	}
}

// markBusy records that a request has arrived. It returns false if the connection was closed in the meantime. The
// request was not processed then, so the client may repeat it.
func (c *conn) markBusy() bool {
	since := c.waitingSince.Load()
	return since != closedForRoom && c.waitingSince.CompareAndSwap(since, 0)
}

// admitAll releases all connections that wait for room, and lets none wait from now on, because the engine is closing.
func (e *Engine) admitAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isAdmittingAll = true
	e.room.Broadcast()
}
