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

// bounds are those of connections. Where one too many comes, the one goes that has done nothing for longest.
type bounds struct {
	connections int
	idle        time.Duration // how long a connection may do nothing
	slow        time.Duration // how long the rest of a message, and the client's reading of an answer, may take
	pipelined   int           // how many queries of one connection may wait for other servers; then no more are read
}

var usual = bounds{connections: 1000, idle: 10 * time.Second, slow: 5 * time.Second, pipelined: 64}

// tcpServer answers queries over connections, several at once on each.
type tcpServer struct {
	handler *handler
	ln      *net.TCPListener
	bounds  bounds
	works   sync.Pool // of *work

	mu    sync.Mutex
	conns map[*connection]bool
	busy  sync.WaitGroup
}

// connection is one client's.
type connection struct {
	net.Conn
	addr    netip.AddrPort
	slow    time.Duration
	writing sync.Mutex
	waiting chan struct{} // one for each query that waits
	later   sync.WaitGroup

	mu    sync.Mutex
	last  time.Time // when something was heard or said
	heard bool      // a query has come
}

// lastCall is when the client has to have asked once the server ends: one that has just connected is about to, others
// can connect anew.
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

// serve answers until ctx ends, and then what has been asked.
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
			// Out of files, say: those that are there go on.
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

// dropIdlest closes the connection that has been silent for longest.
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

// talk answers the queries of one connection, in the order in which answers are there.
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
			return // what is no query is not the beginning of a conversation
		}
		out = reply
		if !c.send(reply) {
			return
		}
	}
}

// wait answers one query with other servers' help, while more are read.
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

// send sends an answer in one piece.
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
