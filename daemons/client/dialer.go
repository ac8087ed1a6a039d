package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// dialer connects to the first of several servers that completes a handshake, starting at
// the one that last did. That a server accepts a connection says little: the kernel
// accepts for a process that hangs.
type dialer struct {
	servers []string
	tls     *tls.Config
	last    atomic.Int64
}

// A server that is gone should cost little, a slow one should not be given up:
// the next is tried after head start, and whichever answers first is taken.
const (
	headStart    = 300 * time.Millisecond
	dialTimeout  = 10 * time.Second
	tcpKeepAlive = 15 * time.Second
)

func (d *dialer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel() // ends the losers
	type attempt struct {
		index int
		conn  net.Conn
		err   error
	}
	attempts := make(chan attempt, len(d.servers))
	start := int(d.last.Load())
	launched, failed := 0, 0
	launch := func() {
		index := (start + launched) % len(d.servers)
		launched++
		go func() {
			conn, err := d.shake(ctx, network, d.servers[index])
			attempts <- attempt{index, conn, err}
		}()
	}
	launch()
	next := time.NewTicker(headStart)
	defer next.Stop()
	var firstErr error
	for {
		select {
		case a := <-attempts:
			if a.err == nil {
				d.last.Store(int64(a.index))
				// Losers that connect after all are closed.
				go func(pending int) {
					for range pending {
						if late := <-attempts; late.conn != nil {
							_ = late.conn.Close()
						}
					}
				}(launched - failed - 1)
				return a.conn, nil
			}
			failed++
			if firstErr == nil {
				firstErr = a.err
			}
			if launched < len(d.servers) {
				launch()
			} else if failed == launched {
				return nil, &net.OpError{Op: "dial", Net: network, Err: &unreachable{d.servers, firstErr}}
			}
		case <-next.C:
			if launched < len(d.servers) {
				launch()
			}
		}
	}
}

// unreachable is that none of the servers answers. To its callers it is a refused connection, whatever
// it was: a client that watches then waits and goes on at its place, where after others it would list all again.
type unreachable struct {
	servers []string
	err     error
}

func (u *unreachable) Error() string {
	return fmt.Sprintf("no API server of %v answers: %v", u.servers, u.err)
}
func (u *unreachable) Unwrap() []error { return []error{syscall.ECONNREFUSED, u.err} }

// shake connects to one server and verifies it.
func (d *dialer) shake(ctx context.Context, network, server string) (net.Conn, error) {
	plain, err := (&net.Dialer{KeepAlive: tcpKeepAlive}).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(plain, d.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, fmt.Errorf("greet %s: %w", server, err)
	}
	return conn, nil
}
