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
)

// bounds are the limits of connections. Beyond the limit, the connection that was idle longest is closed.
type bounds struct {
	connections int
	idle        time.Duration // limit of idle time
	slow        time.Duration // limit for the rest of a message, and for the client to read an answer
	pipelined   int           // number of queries per connection that may wait for other servers; no more are read then
}

var usual = bounds{connections: 1000, idle: 10 * time.Second, slow: 5 * time.Second, pipelined: 64}

// tcpServer answers queries over TCP, several concurrently on each connection.
type tcpServer struct {
	handler *handler
	ln      *net.TCPListener
	bounds  bounds
	works   sync.Pool // of *work

	mu    sync.Mutex
	conns map[*connection]bool
	busy  sync.WaitGroup
}

// connection is a client connection.
type connection struct {
	net.Conn
	addr    netip.AddrPort
	slow    time.Duration
	writing sync.Mutex
	waiting chan struct{} // holds one value for each waiting query
	later   sync.WaitGroup

	mu    sync.Mutex
	last  time.Time // time of the last query or answer
	heard bool      // a query has arrived
}

// lastCall returns the deadline for queries when the server stops. A new connection has a second for its first query;
// other clients can reconnect.
func (c *connection) lastCall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard {
		return time.Unix(1, 0)
	}
	return time.Now().Add(time.Second)
}

func newTCPServer(h *handler, ln *net.TCPListener, b bounds) *tcpServer {
	return &tcpServer{
		handler: h,
		ln:      ln,
		bounds:  b,
		works:   sync.Pool{New: func() any { return new(work) }},
		conns:   map[*connection]bool{},
	}
}

// serve answers queries until ctx ends, and then the queries that have arrived.
func (s *tcpServer) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		_ = s.ln.SetDeadline(time.Unix(1, 0))
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			_ = c.SetReadDeadline(c.lastCall())
		}
	})
	defer stop()
	defer s.busy.Wait()
	for {
		conn, err := s.ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// Out of file descriptors, for example: existing connections continue.
			s.handler.log.Warn("accept a connection", "error", err)
			if !s.dropIdlest() {
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
			Conn:    conn,
			slow:    s.bounds.slow,
			waiting: make(chan struct{}, s.bounds.pipelined),
			last:    time.Now(),
		}
		if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			c.addr = a.AddrPort()
		}
		s.mu.Lock()
		s.conns[c] = true
		full := len(s.conns) > s.bounds.connections
		s.mu.Unlock()
		if full {
			s.dropIdlest()
		}
		s.busy.Go(func() {
			s.talk(ctx, c)
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// dropIdlest closes the connection that was idle longest. It reports whether there was one.
func (s *tcpServer) dropIdlest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var idlest *connection
	var since time.Time
	for c := range s.conns {
		c.mu.Lock()
		last := c.last
		c.mu.Unlock()
		if idlest == nil || last.Before(since) {
			idlest, since = c, last
		}
	}
	if idlest == nil {
		return false
	}
	delete(s.conns, idlest)
	_ = idlest.Close()
	return true
}

// talk answers the queries of one connection. Answers may be sent in another order than the queries.
func (s *tcpServer) talk(ctx context.Context, c *connection) {
	defer c.Close()
	defer c.later.Wait()
	w := s.works.Get().(*work)
	defer s.works.Put(w)
	in := bufio.NewReader(c)
	var message, out []byte
	for {
		if c.SetReadDeadline(time.Now().Add(s.bounds.idle)) != nil {
			return
		}
		if ctx.Err() != nil && in.Buffered() == 0 && c.SetReadDeadline(c.lastCall()) != nil {
			return
		}
		var head [2]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		began, size := time.Now(), int(binary.BigEndian.Uint16(head[:]))
		if size > cap(message) {
			message = make([]byte, size)
		}
		message = message[:size]
		if c.SetReadDeadline(began.Add(c.slow)) != nil {
			return
		}
		if _, err := io.ReadFull(in, message); err != nil {
			return
		}
		c.touch(began)
		who := sender{addr: c.addr, tcp: true}
		reply, later := s.handler.respond(ctx, w, out[:0], message, who, false, began)
		if later {
			s.wait(ctx, c, append([]byte(nil), message...), who, began)
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

// wait answers one query with the help of other servers. Meanwhile, talk reads more queries.
func (s *tcpServer) wait(ctx context.Context, c *connection, message []byte, who sender, began time.Time) {
	c.waiting <- struct{}{}
	c.later.Go(func() {
		defer func() { <-c.waiting }()
		w := s.works.Get().(*work)
		defer s.works.Put(w)
		if reply, _ := s.handler.respond(context.WithoutCancel(ctx), w, nil, message, who, true, began); len(
			reply,
		) > 0 {
			c.send(reply)
		}
	})
}

func (c *connection) touch(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.heard = now, true
}

// send sends an answer.
func (c *connection) send(reply []byte) bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	now := time.Now()
	c.touch(now)
	if c.SetWriteDeadline(now.Add(c.slow)) != nil {
		return false
	}
	head := binary.BigEndian.AppendUint16(nil, uint16(len(reply)))
	parts := net.Buffers{head, reply}
	_, err := parts.WriteTo(c.Conn)
	return err == nil
}
