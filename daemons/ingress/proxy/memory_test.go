package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"

	"golang.org/x/net/http2"

	"clusterctl/tests/tools/amount"
)

// inUse returns the memory of the heap and of goroutine stacks, in bytes.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // the second run frees the contents of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// The memory of an idle connection is limited on every listener. The limit times max_connections is the maximum for
// all, besides the kernel's memory for sockets.
// Proves S32.
func TestAConnectionTakesBoundedMemory(t *testing.T) {
	p := startProxy(t, nil)
	p.addRoute("a.example", "/", []string{startBackend(t, func(http.ResponseWriter, *http.Request) {})})
	shake := func(t *testing.T, protocol string) net.Conn {
		c := tls.Client(connect(t, p.secure),
			&tls.Config{RootCAs: p.roots, ServerName: "a.example", NextProtos: []string{protocol}})
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
		for range 2 { // its settings, and the acknowledgment of ours
			if _, err := f.ReadFrame(); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask := func(t *testing.T, c net.Conn) {
		if err := sendGet(c, "/"); err != nil {
			t.Fatal(err)
		}
	}
	// Clients only keep the socket, so that their TLS state is not counted.
	for _, kind := range []struct {
		name    string
		maximum int64 // KiB
		open    func(t *testing.T)
	}{
		{"plain", 24, func(t *testing.T) { ask(t, connect(t, p.plain)) }},
		{"TLS", 64, func(t *testing.T) { ask(t, shake(t, "http/1.1")) }},
		{"HTTP/2", 64, func(t *testing.T) { preface(t, connect(t, p.plain)) }},
		{"HTTP/2 over TLS", 96, func(t *testing.T) { preface(t, shake(t, "h2")) }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			eventually(t, "connections of the former kind stay open", func() bool { return p.e.connections() == 0 })
			kind.open(t) // for one-time allocations
			eventually(t, "the first connection is not open", func() bool { return p.e.connections() == 1 })
			before := inUse()
			n := amount.Scaled(300, 60)
			for range n {
				kind.open(t)
			}
			eventually(t, "not all connections are open", func() bool { return p.e.connections() == 1+n })
			each := (inUse() - before) / int64(n)
			t.Logf("%d bytes for each connection", each)
			if each > kind.maximum<<10 {
				t.Errorf("a connection takes %d KiB", each>>10)
			}
		})
	}
}
