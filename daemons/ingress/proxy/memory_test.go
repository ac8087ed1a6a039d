package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"

	"golang.org/x/net/http2"

	"clusterctl/tests/amount"
)

// inUse is memory of objects and of goroutines' stacks.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // what pools let go of is free after the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// S32: a connection that waits for its next request takes so much memory at most, whichever listener it came to:
// max_connections times that is what all of them take, besides what the kernel has for their sockets.
func TestAConnectionTakesBoundedMemoryS32(t *testing.T) {
	p := start(t, nil)
	p.route("a.example", "/", []string{backend(t, func(http.ResponseWriter, *http.Request) {})})
	shake := func(t *testing.T, protocol string) net.Conn {
		c := tls.Client(
			open(t, p.secure),
			&tls.Config{RootCAs: p.roots, ServerName: "a.example", NextProtos: []string{protocol}},
		)
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	preface := func(t *testing.T, c net.Conn) {
		if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		f := http2.NewFramer(c, c)
		if err := f.WriteSettings(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // its settings, and that it has ours
			if _, err := f.ReadFrame(); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask := func(t *testing.T, c net.Conn) {
		if err := get(c, "/"); err != nil {
			t.Fatal(err)
		}
	}
	// Clients keep the socket alone: what they had for TLS is not counted.
	for _, kind := range []struct {
		name string
		most int64 // KiB
		open func(t *testing.T)
	}{
		{"plain", 24, func(t *testing.T) { ask(t, open(t, p.plain)) }},
		{"TLS", 64, func(t *testing.T) { ask(t, shake(t, "http/1.1")) }},
		{"HTTP/2", 64, func(t *testing.T) { preface(t, open(t, p.plain)) }},
		{"HTTP/2 over TLS", 96, func(t *testing.T) { preface(t, shake(t, "h2")) }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			kind.open(t) // what is made once
			before, had := inUse(), p.e.connections()
			n := amount.Of(300, 60)
			for range n {
				kind.open(t)
			}
			if got := p.e.connections() - had; got != n {
				t.Fatalf("%d of %d connections are open", got, n)
			}
			each := (inUse() - before) / int64(n)
			t.Logf("%d bytes for each connection", each)
			if each > kind.most<<10 {
				t.Errorf("a connection takes %d KiB", each>>10)
			}
		})
	}
}
