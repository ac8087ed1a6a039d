package dns

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"clusterctl/daemons/run"
)

// connectionLimits are the limits of connections. Beyond the limit, the connection that was idle longest is closed.
type connectionLimits struct {
	connections int
	idleTimeout time.Duration // limit of idle time
	slowTimeout time.Duration // limit for the rest of a message, and for the client to read an answer
	// number of queries per connection that may wait for other servers; no more are read then
	maxPipelined int
}

var defaultLimits = connectionLimits{connections: 1000, idleTimeout: 10 * time.Second, slowTimeout: 5 * time.Second,
	maxPipelined: 64}

// tcpServer answers queries over TCP, several concurrently on each connection.
type tcpServer struct {
	handler    *handler
	ln         *net.TCPListener
	limits     connectionLimits
	workspaces sync.Pool // of *workspace

	mu      sync.Mutex
	conns   map[*connection]bool
	running sync.WaitGroup
}

// connection is a client connection.
type connection struct {
	net.Conn
	addr        netip.AddrPort
	slowTimeout time.Duration
	writeMutex  sync.Mutex
	waitSlots   chan struct{} // holds one value for each waiting query
	waiters     sync.WaitGroup

	mu         sync.Mutex
	lastActive time.Time // time of the last query or answer
	hasQuery   bool      // a query has arrived
}

// stopDeadline returns the deadline for queries when the server stops. A new connection has a second for its first
// query; other clients can reconnect.
func (c *connection) stopDeadline() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasQuery {
		return time.Unix(1, 0)
	}
	return time.Now().Add(time.Second)
}

func newTCPServer(h *handler, ln *net.TCPListener, b connectionLimits) *tcpServer {
	return &tcpServer{
		handler:    h,
		ln:         ln,
		limits:     b,
		workspaces: sync.Pool{New: func() any { return new(workspace) }},
		conns:      map[*connection]bool{},
	}
}

// serve answers queries until ctx ends, and then the queries that have arrived.
func (s *tcpServer) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		_ = s.ln.SetDeadline(time.Unix(1, 0))
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			_ = c.SetReadDeadline(c.stopDeadline())
		}
	})
	defer stop()
	defer s.running.Wait()
	for {
		conn, err := s.ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// Out of file descriptors, for example: existing connections continue.
			s.handler.log.Warn("accept a connection", "error", err)
			if !s.closeLongestIdle() {
				timer := time.NewTimer(100 * time.Millisecond)
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
				timer.Stop()
			}
			continue
		}
		c := &connection{
			Conn:        conn,
			slowTimeout: s.limits.slowTimeout,
			waitSlots:   make(chan struct{}, s.limits.maxPipelined),
			lastActive:  time.Now(),
		}
		if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			c.addr = a.AddrPort()
		}
		s.mu.Lock()
		s.conns[c] = true
		full := len(s.conns) > s.limits.connections
		s.mu.Unlock()
		if full {
			s.closeLongestIdle()
		}
		s.running.Go(func() {
			s.serveConnection(ctx, c)
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// closeLongestIdle closes the connection that was idle longest. It reports whether there was one.
func (s *tcpServer) closeLongestIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var idlest *connection
	var since time.Time
	for c := range s.conns {
		c.mu.Lock()
		last := c.lastActive
		c.mu.Unlock()
		if idlest == nil || last.Before(since) {
			idlest, since = c, last
		}
	}
	if idlest == nil {
		return false
	}
	delete(s.conns, idlest)
	_ = run.CloseWithin(idlest.Conn, idlest.slowTimeout)
	return true
}

// serveConnection answers the queries of one connection. Answers may be sent in another order than the queries.
func (s *tcpServer) serveConnection(ctx context.Context, c *connection) {
	defer func() { _ = run.CloseWithin(c.Conn, c.slowTimeout) }()
	defer c.waiters.Wait()
	w := s.workspaces.Get().(*workspace)
	defer s.workspaces.Put(w)
	in := bufio.NewReader(c)
	var message, out []byte
	for {
		if c.SetReadDeadline(time.Now().Add(s.limits.idleTimeout)) != nil {
			return
		}
		if ctx.Err() != nil && in.Buffered() == 0 && c.SetReadDeadline(c.stopDeadline()) != nil {
			return
		}
		var head [2]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		start, size := time.Now(), int(binary.BigEndian.Uint16(head[:]))
		if size > cap(message) {
			message = make([]byte, size)
		}
		message = message[:size]
		if c.SetReadDeadline(start.Add(c.slowTimeout)) != nil {
			return
		}
		if _, err := io.ReadFull(in, message); err != nil {
			return
		}
		c.markActive(start)
		from := sender{addr: c.addr, tcp: true}
		reply, later := s.handler.respond(ctx, w, out[:0], message, from, false, start)
		if later {
			s.answerLater(ctx, c, append([]byte(nil), message...), from, start)
			continue
		}
		if len(reply) == 0 {
			return // not a query, so close the connection
		}
		out = reply
		if !c.send(reply) {
			return
		}
	}
}

// answerLater answers one query with the help of other servers. Meanwhile, serveConnection reads more queries.
func (s *tcpServer) answerLater(ctx context.Context, c *connection, message []byte, from sender, start time.Time) {
	c.waitSlots <- struct{}{}
	c.waiters.Go(func() {
		defer func() { <-c.waitSlots }()
		w := s.workspaces.Get().(*workspace)
		defer s.workspaces.Put(w)
		if reply, _ := s.handler.respond(context.WithoutCancel(ctx), w, nil, message, from, true, start); len(
			reply,
		) > 0 {
			c.send(reply)
		}
	})
}

func (c *connection) markActive(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastActive, c.hasQuery = now, true
}

// send sends an answer.
func (c *connection) send(reply []byte) bool {
	c.writeMutex.Lock()
	defer c.writeMutex.Unlock()
	now := time.Now()
	c.markActive(now)
	if c.SetWriteDeadline(now.Add(c.slowTimeout)) != nil {
		return false
	}
	head := binary.BigEndian.AppendUint16(nil, uint16(len(reply)))
	parts := net.Buffers{head, reply}
	_, err := parts.WriteTo(c.Conn)
	return err == nil
}
