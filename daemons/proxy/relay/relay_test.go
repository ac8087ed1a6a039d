package relay

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"clusterctl/daemons/proxy/rules"
)

func endpoints(list ...string) (eps []rules.Endpoint) {
	for _, e := range list {
		eps = append(eps, rules.Endpoint{To: netip.MustParseAddrPort(e)})
	}
	return eps
}

// Proves S28.
func TestEndpointsAreSelectedInTurn(t *testing.T) {
	now := time.Unix(0, 0)
	turns := Turns{Now: func() time.Time { return now }}
	client := netip.MustParseAddr("10.0.0.9")
	w := rules.Candidates{Key: "a", Endpoints: endpoints("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")}
	next := func(want string) {
		t.Helper()
		if got, ok := turns.Next(w, client, nil); !ok || got.String() != want {
			t.Errorf("%s, %t; want %s", got, ok, want)
		}
	}
	for range 2 {
		next("10.0.0.1:80")
		next("10.0.0.2:80")
		next("10.0.0.3:80")
	}
	next("10.0.0.1:80")
	w.Endpoints = endpoints("10.0.0.1:80", "10.0.0.3:80") // one is removed; the next one is not skipped
	next("10.0.0.3:80")
	if got, ok := turns.Next(w, client, map[netip.AddrPort]bool{w.Endpoints[0].To: true}); !ok ||
		got != w.Endpoints[1].To {
		t.Errorf("one that failed is followed by %s, %t", got, ok)
	}
	if got, ok := turns.Next(rules.Candidates{Key: "b"}, client, nil); ok {
		t.Errorf("of none there is %s", got)
	}
	w.Affinity = 10
	next("10.0.0.1:80")
	now = now.Add(9 * time.Second)
	next("10.0.0.1:80")
	now = now.Add(9 * time.Second)
	next("10.0.0.1:80") // every connection extends the affinity
	now = now.Add(10 * time.Second)
	next("10.0.0.3:80")
	for i := range 2 * maxClients {
		turns.Next(w, netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)}), nil)
	}
	if n := len(turns.byKey["a"].clients); n > maxClients {
		t.Errorf("%d clients are remembered", n)
	}
	turns.Remove("a", "b")
	if len(turns.byKey) != 0 {
		t.Errorf("left is %v", turns.byKey)
	}
}

// pipe returns a client's and an endpoint's connection with the proxy between them.
func pipe(t *testing.T) (client, endpoint *net.TCPConn) {
	t.Helper()
	pair := func() (a, b *net.TCPConn) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		other, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(); other.Close() })
		return c.(*net.TCPConn), other.(*net.TCPConn)
	}
	client, front := pair()
	back, endpoint := pair()
	go copyStream(back, front)
	go copyStream(front, back)
	return client, endpoint
}

// Proves S28.
func TestAHalfCloseIsForwarded(t *testing.T) {
	client, endpoint := pipe(t)
	deadline := time.Now().Add(10 * time.Second)
	_, _ = client.SetDeadline(deadline), endpoint.SetDeadline(deadline)
	fmt.Fprint(client, "question")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(endpoint); string(b) != "question" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	fmt.Fprint(endpoint, "answer")
	endpoint.Close()
	if b, err := io.ReadAll(client); string(b) != "answer" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

func TestTheRelayIsReachedOnlyThroughAService(t *testing.T) {
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := &TCP{
		Listener: ln,
		Turns:    &Turns{},
		Log:      slog.New(slog.DiscardHandler),
		Resolve: func(_, to netip.AddrPort) (rules.Candidates, bool) {
			t.Errorf("asked where %s leads", to)
			return rules.Candidates{}, false
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	if c, err := net.Dial("tcp", ln.Addr().String()); err == nil { // it may be refused before it is accepted
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("it is answered")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A single sender can create many flows, so an idle flow must cost little.
func TestIdleFlowsUseLittleMemory(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	to := endpoints(pc.LocalAddr().String())
	u, err := ListenUDP("udp4", &Turns{}, slog.New(slog.DiscardHandler), func(netip.Addr) (rules.Candidates, bool) {
		return rules.Candidates{Key: "a", Endpoints: to}, true
	})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	const clients = 256
	before := held()
	for range clients {
		c, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", u.Port()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "?")
		_ = pc.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, from, err := pc.ReadFrom(make([]byte, 10))
		if err == nil {
			_, err = pc.WriteTo([]byte("!"), from)
		}
		if err == nil { // the flow has had a response and waits for the next
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			_, err = c.Read(make([]byte, 10))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if each := (held() - before) / clients; each > 20<<10 {
		t.Errorf("a flow costs %d bytes", each)
	}
}

// Proves S28.
func TestPacketsAreAnsweredAndFlowsAreLimited(t *testing.T) {
	var at []string
	for range 2 {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer pc.Close()
		at = append(at, pc.LocalAddr().String())
		go func() {
			b := make([]byte, 100)
			for {
				_, from, err := pc.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = pc.WriteTo([]byte(pc.LocalAddr().String()), from)
			}
		}()
	}
	slices.SortFunc(at, func(a, b string) int { return netip.MustParseAddrPort(a).Compare(netip.MustParseAddrPort(b)) })
	var now atomic.Pointer[[]string]
	now.Store(&at)
	u, err := ListenUDP("udp4", &Turns{}, slog.New(slog.DiscardHandler), func(netip.Addr) (rules.Candidates, bool) {
		return rules.Candidates{Key: "a", Endpoints: endpoints(*now.Load()...)}, true
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(c net.Conn) string {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(c, "?")
		b := make([]byte, 100)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	dial := func() net.Conn {
		c, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", u.Port()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	first, second := dial(), dial()
	a, b := ask(first), ask(second)
	if a == b || ask(first) != a {
		t.Errorf("answered by %s and %s, then %s", a, b, ask(first))
	}
	now.Store(&[]string{b})
	u.CloseOthers(endpoints(b)) // the first client's endpoint is removed, so its next packet goes to another
	if got := ask(first); got != b {
		t.Errorf("answered by %s", got)
	}
	u.Close()
	if len(u.flows) > 0 {
		t.Errorf("%d flows are left", len(u.flows))
	}
}
