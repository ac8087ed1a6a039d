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
	controlAddress = "10.99.0.11"
	nodeAddress    = "10.99.0.21"
)

var tlsAddresses = []string{controlAddress + ":6443", nodeAddress + ":10250"}

// floods are requests of unauthenticated clients. Each is repeated on several connections at once.
var floods = []struct {
	name  string
	times int // number of parallel loops
	do    func(context.Context) error
}{
	{"connections that say nothing", 200, floodIdle},
	{"connections that stop after the handshake", 200, floodHandshakes},
	{"requests with made-up paths, methods and queries", 4, floodUnknownPaths},
	{"headers as large as may be", 8, floodLargeHeaders},
	{"bodies that are announced and do not come", 16, floodAnnouncedBodies},
	{"frames that carry nothing", 4, floodFrames},
	{"HTTP/1.1 that comes a byte at a time", 100, floodTrickle},
	{"heads that come a byte at a time, to the ingress", 200, sendSlowly("GET / HTTP/1.1\r\nHost: shop\r\nX-Long: ")},
	{
		"bodies that come a byte at a time, to the ingress",
		400,
		sendSlowly("POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 200000\r\n\r\n"),
	},
	{"tokens that are nobody's", 4, floodTokens},
	{"names that do not exist", 4, floodNames},
}

// runFloods runs all floods for a time.
func runFloods(ctx context.Context, length time.Duration) error {
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
					} else if !sleepContext(ctx, 20*time.Millisecond) {
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

// sleepContext waits. It returns false if ctx has ended.
func sleepContext(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// holdConnection keeps a connection until its server ends it, for at most half a minute.
func holdConnection(ctx context.Context, conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_, _ = io.Copy(io.Discard, conn)
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
}

func dialTLS(ctx context.Context, address string, protocols ...string) (*tls.Conn, error) {
	plain, err := dialTCP(ctx, address)
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

func pickOne[T any](list []T) T {
	var b [1]byte
	_, _ = rand.Read(b[:])
	return list[int(b[0])%len(list)]
}

func randomWord(n int) string { return rand.Text()[:min(n, 26)] }

func floodIdle(ctx context.Context) error {
	conn, err := dialTCP(ctx, pickOne(append([]string{nodeAddress + ":10256", nodeAddress + ":53", nodeAddress + ":80"},
		tlsAddresses...)))
	if err != nil {
		return err
	}
	defer conn.Close()
	holdConnection(ctx, conn)
	return nil
}

func floodHandshakes(ctx context.Context) error {
	conn, err := dialTLS(ctx, pickOne(tlsAddresses), "h2", "http/1.1")
	if err != nil {
		return err
	}
	defer conn.Close()
	holdConnection(ctx, conn)
	return nil
}

// frameClient is an HTTP/2 connection that can send any frame.
type frameClient struct {
	*http2.Framer
	conn  *tls.Conn
	block bytes.Buffer
	enc   *hpack.Encoder
}

func newFrameClient(ctx context.Context) (*frameClient, func(), error) {
	conn, err := dialTLS(ctx, controlAddress+":6443", "h2")
	if err != nil {
		return nil, nil, err
	}
	c := &frameClient{conn: conn, Framer: http2.NewFramer(conn, conn)}
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

func (c *frameClient) sendHeaders(id uint32, method, path string, end bool, more ...string) error {
	c.block.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":authority", controlAddress, ":path", path},
		more...)
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

// repeatRequests calls ask on one connection until the connection ends.
func repeatRequests(ctx context.Context, ask func(c *frameClient, id uint32) error) error {
	c, end, err := newFrameClient(ctx)
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

func floodUnknownPaths(ctx context.Context) error {
	return repeatRequests(ctx, func(c *frameClient, id uint32) error {
		method := pickOne([]string{"GET", "POST", "DELETE", "PATCH", randomWord(8)})
		path := pickOne(
			[]string{
				"/" + randomWord(20),
				"/api/v1/" + randomWord(20),
				"/apis/" + randomWord(5) + "/v1/" + randomWord(5),
				"/api/v1/namespaces/" + randomWord(9) + "/pods/" + randomWord(9) + "/" + randomWord(9),
				"/healthz/" + randomWord(9),
				"/api/v1/pods?fieldSelector=" + randomWord(20) + "&dryRun=" + randomWord(9),
				"/%ff%fe" + randomWord(9),
				"/openapi/v3/" + randomWord(9),
			},
		)
		return c.sendHeaders(id, method, path, true, "user-agent", randomWord(26))
	})
}

func floodLargeHeaders(ctx context.Context) error {
	long := strings.Repeat("x", 60<<10)
	return repeatRequests(ctx,
		func(c *frameClient, id uint32) error { return c.sendHeaders(id, "GET", "/api", true, "x-long", long) })
}

func floodAnnouncedBodies(ctx context.Context) error {
	c, end, err := newFrameClient(ctx)
	if err != nil {
		return err
	}
	defer end()
	for i := range uint32(200) {
		if c.sendHeaders(2*i+1, "POST", "/api/v1/namespaces", false, "content-length", "3000000", "content-type",
			"application/json") != nil {
			return nil
		}
		if c.WriteData(2*i+1, false, []byte(`{"metadata":`)) != nil {
			return nil
		}
	}
	sleepContext(ctx, 5*time.Second)
	return nil
}

func floodFrames(ctx context.Context) error {
	frame := func(kind http2.FrameType, id uint32, payload ...byte) []byte {
		n := len(payload)
		head := binary.BigEndian.AppendUint32([]byte{byte(n >> 16), byte(n >> 8), byte(n), byte(kind), 0}, id)
		return append(head, payload...)
	}
	kind := pickOne([][]byte{
		frame(http2.FrameSettings, 0, 0, 4, 0, 1, 0,
			0), frame(http2.FramePing, 0, make([]byte, 8)...), frame(http2.FramePriority, 3, 0, 0, 0, 0, 1),
		frame(http2.FrameWindowUpdate, 0, 0, 0, 0,
			1), frame(0x77, 0, make([]byte, 1000)...), frame(http2.FrameGoAway, 0, make([]byte, 8)...),
	})
	c, end, err := newFrameClient(ctx)
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

func floodTrickle(ctx context.Context) error {
	conn, err := dialTLS(ctx, pickOne(tlsAddresses), "http/1.1")
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, "POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\n"); err != nil {
		return nil
	}
	for sleepContext(ctx, 200*time.Millisecond) {
		if _, err := fmt.Fprintf(conn, "X-%s: %s\r\n", randomWord(9), strings.Repeat("y", 1000)); err != nil {
			return nil
		}
	}
	return nil
}

// sendSlowly sends a text to the ingress, and then single bytes until the ingress closes the connection.
func sendSlowly(first string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := dialTCP(ctx, nodeAddress+":80")
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, first); err != nil {
			return nil
		}
		for sleepContext(ctx, 200*time.Millisecond) {
			if _, err := conn.Write([]byte("y")); err != nil {
				return nil
			}
		}
		return nil
	}
}

func floodTokens(ctx context.Context) error {
	return repeatRequests(ctx, func(c *frameClient, id uint32) error {
		token := pickOne(
			[]string{
				randomWord(26),
				randomWord(6) + "." + randomWord(16),
				"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIi" + randomWord(20) + "." + randomWord(26),
			},
		)
		return c.sendHeaders(id, "GET", "/api", true, "authorization", "Bearer "+token)
	})
}

// floodNames queries the name server for random names.
func floodNames(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", nodeAddress+":53")
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 500 {
		query := []byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
		for _, label := range []string{strings.ToLower(randomWord(20)), "shop", "svc", "cluster", "local"} {
			query = append(append(query, byte(len(label))), label...)
		}
		if _, err := conn.Write(append(query, 0, 0, 1, 0, 1)); err != nil || !sleepContext(ctx, time.Millisecond) {
			return nil
		}
	}
	return nil
}
