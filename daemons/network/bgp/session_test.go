package bgp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"
)

// A router that accepts a connection and stays silent does not delay the end of the session.
func TestASilentRouterDoesNotDelayTheStop(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := ln.Accept(); err == nil {
			accepted <- conn
		}
	}()
	address := netip.MustParseAddr("127.0.0.1")
	c := &session{
		peer: Peer{
			Address: ln.Addr().(*net.TCPAddr).AddrPort(), ASN: 65001, LocalASN: 65000, HoldTime: 90 * time.Second,
		},
		running: &runningSession{machine: Machine{Identifier: address, NextHops: []netip.Addr{address}}},
		log:     slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.run(ctx, func() { t.Error("the session is established") }) }()
	conn := <-accepted
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err != nil { // the OPEN message: the session waits for the answer
		t.Fatal(err)
	}
	cancel()
	// Without the end by ctx, the error would be that of a router that does not answer in time.
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the session ended with %v", err)
	}
}
