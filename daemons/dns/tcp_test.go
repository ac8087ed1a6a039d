package dns

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// serveTCP answers connections with the given limits until the test ends.
func serveTCP(t *testing.T, h *handler, b connectionLimits) string {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- newTCPServer(h, ln, b).serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		ln.Close()
	})
	return ln.Addr().String()
}

func dialTCP(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func writeMessages(t *testing.T, conn net.Conn, messages ...[]byte) {
	t.Helper()
	var all []byte
	for _, m := range messages {
		all = append(binary.BigEndian.AppendUint16(all, uint16(len(m))), m...)
	}
	if _, err := conn.Write(all); err != nil {
		t.Fatal(err)
	}
}

func readMessage(t *testing.T, conn net.Conn) *dns.Msg {
	t.Helper()
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, b); err != nil {
		t.Fatal(err)
	}
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil {
		t.Fatal(err)
	}
	return m
}

// waitClosed waits until the server closes the connection.
func waitClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	n, err := conn.Read(make([]byte, 1))
	if timeout, ok := err.(net.Error); n > 0 || err == nil || ok && timeout.Timeout() {
		t.Errorf("the connection is open: read %d bytes, %v", n, err)
	}
}

// A connection can carry several concurrent queries, and a slow one does not block the others (RFC 7766).
func TestQueriesOfAConnectionAreAnsweredConcurrently(t *testing.T) {
	release := make(chan struct{})
	world := answerRecords(t, "slow.example. 60 IN A 192.0.2.1")
	address := serveTCP(t, newHandler(t, startUpstream(t, func(q *dns.Msg) *dns.Msg { <-release; return world(q) })),
		defaultLimits)
	conn := dialTCP(t, address)
	writeMessages(t, conn, packQuery(t, "slow.example.", dns.TypeA),
		packQuery(t, "web-1.shop.svc.cluster.local.", dns.TypeA),
		packQuery(t, "web-2.shop.svc.cluster.local.", dns.TypeA))
	for _, want := range []string{"A 10.96.0.1", "A 10.96.0.2"} {
		if got := formatAnswer(readMessage(t, conn)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	close(release)
	if got := formatAnswer(readMessage(t, conn)); got != "A 192.0.2.1" {
		t.Errorf("got %s", got)
	}
	// A query arrives byte by byte.
	m := packQuery(t, "web-3.shop.svc.cluster.local.", dns.TypeA)
	for _, b := range append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...) {
		if _, err := conn.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if got := formatAnswer(readMessage(t, conn)); got != "A 10.96.0.3" {
		t.Errorf("got %s", got)
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	address := serveTCP(
		t,
		newHandler(t),
		connectionLimits{connections: 10, idleTimeout: 50 * time.Millisecond, slowTimeout: 50 * time.Millisecond,
			maxPipelined: 2},
	)
	waitClosed(t, dialTCP(t, address))
	half := dialTCP(t, address)
	if _, err := half.Write([]byte{0, 40, 1}); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, half)
	wrong := dialTCP(t, address)
	writeMessages(t, wrong, []byte("no query"))
	waitClosed(t, wrong)
}

func TestLongestIdleConnectionIsClosedAtTheLimit(t *testing.T) {
	address := serveTCP(t, newHandler(t),
		connectionLimits{connections: 2, idleTimeout: time.Minute, slowTimeout: time.Minute, maxPipelined: 2})
	q := packQuery(t, "web-1.shop.svc.cluster.local.", dns.TypeA)
	idle, busy := dialTCP(t, address), dialTCP(t, address)
	for _, conn := range []net.Conn{idle, busy, busy} {
		writeMessages(t, conn, q)
		readMessage(t, conn)
	}
	late := dialTCP(t, address)
	writeMessages(t, late, q)
	readMessage(t, late)
	waitClosed(t, idle)
	writeMessages(t, busy, q)
	readMessage(t, busy)
}
