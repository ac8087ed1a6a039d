package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The machines' addresses are those of examples/small.
const (
	control = "10.99.0.11"
	node    = "10.99.0.21"
)

var tlsAddresses = []string{control + ":6443", node + ":10250"}

// floods are requests of unauthenticated clients. Each is repeated on several connections at once.
var floods = []struct {
	name  string
	times int // number of parallel loops
	do    func(context.Context) error
}{
	{"connections that say nothing", 200, idle},
	{"connections that stop after the handshake", 200, shaken},
	{"requests with made-up paths, methods and queries", 4, madeUp},
	{"headers as large as may be", 8, largeHeaders},
	{"bodies that are announced and do not come", 16, announced},
	{"frames that carry nothing", 4, frames},
	{"HTTP/1.1 that comes a byte at a time", 100, trickle},
	{"heads that come a byte at a time, to the ingress", 200, slowly("GET / HTTP/1.1\r\nHost: shop\r\nX-Long: ")},
	{
		"bodies that come a byte at a time, to the ingress",
		400,
		slowly("POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 200000\r\n\r\n"),
	},
	{"tokens that are nobody's", 4, tokens},
	{"names that do not exist", 4, names},
}

// flood runs all floods for a time.
func flood(ctx context.Context, length time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	counts := make([]atomic.Int64, len(floods))
	var wait sync.WaitGroup
	for i, f := range floods {
		for range f.times {
			wait.Go(func() {
				for ctx.Err() == nil {
					if f.do(ctx) == nil {
						counts[i].Add(1)
					} else if !pause(ctx, 20*time.Millisecond) {
						return
					}
				}
			})
		}
	}
	wait.Wait()
	for i, f := range floods {
		fmt.Printf("%8d × %s\n", counts[i].Load(), f.name)
	}
	return nil
}

// pause waits. It returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// hold keeps a connection until its server ends it, for at most half a minute.
func hold(ctx context.Context, conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_, _ = io.Copy(io.Discard, conn)
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
}

func handshake(ctx context.Context, address string, protocols ...string) (*tls.Conn, error) {
	plain, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(
		plain,
		&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: protocols},
	) //nolint:gosec // whoever floods does not ask
	shaking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := conn.HandshakeContext(shaking); err != nil {
		_ = plain.Close()
		return nil, err
	}
	return conn, nil
}

func oneOf[T any](list []T) T {
	var b [1]byte
	_, _ = rand.Read(b[:])
	return list[int(b[0])%len(list)]
}

func word(n int) string { return rand.Text()[:min(n, 26)] }

func idle(ctx context.Context) error {
	conn, err := dial(ctx, oneOf(append([]string{node + ":10256", node + ":53", node + ":80"}, tlsAddresses...)))
	if err != nil {
		return err
	}
	defer conn.Close()
	hold(ctx, conn)
	return nil
}

func shaken(ctx context.Context) error {
	conn, err := handshake(ctx, oneOf(tlsAddresses), "h2", "http/1.1")
	if err != nil {
		return err
	}
	defer conn.Close()
	hold(ctx, conn)
	return nil
}

// client is an HTTP/2 connection that can send any frame.
type client struct {
	*http2.Framer
	conn  *tls.Conn
	block bytes.Buffer
	enc   *hpack.Encoder
}

func connect(ctx context.Context) (*client, func(), error) {
	conn, err := handshake(ctx, control+":6443", "h2")
	if err != nil {
		return nil, nil, err
	}
	c := &client{conn: conn, Framer: http2.NewFramer(conn, conn)}
	c.enc = hpack.NewEncoder(&c.block)
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, nil, err
	}
	if err := c.WriteSettings(); err != nil {
		return nil, nil, err
	}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		_, _ = io.Copy(io.Discard, conn)
	}()
	return c, func() {
		_ = conn.Close()
		<-reading
	}, nil
}

func (c *client) ask(id uint32, method, path string, end bool, more ...string) error {
	c.block.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":authority", control, ":path", path}, more...)
	for i := 0; i < len(fields); i += 2 {
		if err := c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1],
			Sensitive: true}); err != nil {
			return err
		}
	}
	first := c.block.Next(16 << 10)
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end,
		EndHeaders: c.block.Len() == 0}); err != nil {
		return err
	}
	for c.block.Len() > 0 {
		next := c.block.Next(16 << 10)
		if err := c.WriteContinuation(id, c.block.Len() == 0, next); err != nil {
			return err
		}
	}
	return nil
}

// many calls ask on one connection until the connection ends.
func many(ctx context.Context, ask func(c *client, id uint32) error) error {
	c, end, err := connect(ctx)
	if err != nil {
		return err
	}
	defer end()
	for i := range uint32(2000) {
		if err := ask(c, 2*i+1); err != nil || ctx.Err() != nil {
			return nil // the server closed the connection, which is correct
		}
	}
	return nil
}

func madeUp(ctx context.Context) error {
	return many(ctx, func(c *client, id uint32) error {
		method := oneOf([]string{"GET", "POST", "DELETE", "PATCH", word(8)})
		path := oneOf(
			[]string{
				"/" + word(20),
				"/api/v1/" + word(20),
				"/apis/" + word(5) + "/v1/" + word(5),
				"/api/v1/namespaces/" + word(9) + "/pods/" + word(9) + "/" + word(9),
				"/healthz/" + word(
					9,
				),
				"/api/v1/pods?fieldSelector=" + word(20) + "&dryRun=" + word(9),
				"/%ff%fe" + word(9),
				"/openapi/v3/" + word(9),
			},
		)
		return c.ask(id, method, path, true, "user-agent", word(26))
	})
}

func largeHeaders(ctx context.Context) error {
	long := strings.Repeat("x", 60<<10)
	return many(ctx, func(c *client, id uint32) error { return c.ask(id, "GET", "/api", true, "x-long", long) })
}

func announced(ctx context.Context) error {
	c, end, err := connect(ctx)
	if err != nil {
		return err
	}
	defer end()
	for i := range uint32(200) {
		if c.ask(
			2*i+1,
			"POST",
			"/api/v1/namespaces",
			false,
			"content-length",
			"3000000",
			"content-type",
			"application/json",
		) != nil {
			return nil
		}
		if c.WriteData(2*i+1, false, []byte(`{"metadata":`)) != nil {
			return nil
		}
	}
	pause(ctx, 5*time.Second)
	return nil
}

func frames(ctx context.Context) error {
	frame := func(kind http2.FrameType, id uint32, payload ...byte) []byte {
		n := len(payload)
		head := binary.BigEndian.AppendUint32([]byte{byte(n >> 16), byte(n >> 8), byte(n), byte(kind), 0}, id)
		return append(head, payload...)
	}
	kind := oneOf([][]byte{
		frame(
			http2.FrameSettings,
			0,
			0,
			4,
			0,
			1,
			0,
			0,
		), frame(http2.FramePing, 0, make([]byte, 8)...), frame(http2.FramePriority, 3, 0, 0, 0, 0, 1),
		frame(
			http2.FrameWindowUpdate,
			0,
			0,
			0,
			0,
			1,
		), frame(0x77, 0, make([]byte, 1000)...), frame(http2.FrameGoAway, 0, make([]byte, 8)...),
	})
	c, end, err := connect(ctx)
	if err != nil {
		return err
	}
	defer end()
	lots := bytes.Repeat(kind, 1000)
	for ctx.Err() == nil {
		if _, err := c.conn.Write(lots); err != nil {
			return nil
		}
	}
	return nil
}

func trickle(ctx context.Context) error {
	conn, err := handshake(ctx, oneOf(tlsAddresses), "http/1.1")
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, "POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\n"); err != nil {
		return nil
	}
	for pause(ctx, 200*time.Millisecond) {
		if _, err := fmt.Fprintf(conn, "X-%s: %s\r\n", word(9), strings.Repeat("y", 1000)); err != nil {
			return nil
		}
	}
	return nil
}

// slowly sends a text to the ingress, and then single bytes until the ingress closes the connection.
func slowly(first string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := dial(ctx, node+":80")
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, first); err != nil {
			return nil
		}
		for pause(ctx, 200*time.Millisecond) {
			if _, err := conn.Write([]byte("y")); err != nil {
				return nil
			}
		}
		return nil
	}
}

func tokens(ctx context.Context) error {
	return many(ctx, func(c *client, id uint32) error {
		token := oneOf(
			[]string{
				word(26),
				word(6) + "." + word(16),
				"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIi" + word(20) + "." + word(26),
			},
		)
		return c.ask(id, "GET", "/api", true, "authorization", "Bearer "+token)
	})
}

// names queries the name server for random names.
func names(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", node+":53")
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 500 {
		query := []byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
		for _, label := range []string{strings.ToLower(word(20)), "shop", "svc", "cluster", "local"} {
			query = append(append(query, byte(len(label))), label...)
		}
		if _, err := conn.Write(append(query, 0, 0, 1, 0, 1)); err != nil || !pause(ctx, time.Millisecond) {
			return nil
		}
	}
	return nil
}
