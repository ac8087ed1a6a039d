package client

import (
	"context"
	"crypto/tls"
	"errors"
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

	patience time.Duration
}

func newDialer(servers []string, verify *tls.Config) *dialer {
	return &dialer{servers: servers, tls: verify, patience: patience}
}

// A server that is gone should cost little, a slow one should not be given up: the next is tried after head start, and
// whichever answers first is taken. When none answers, a dial goes on trying: a watcher that is refused waits longer
// each time before it comes back, up to a minute, and would find a server that is there again that much later. Its
// waits begin anew after two minutes without a refusal, which is less than the patience.
const (
	headStart    = 300 * time.Millisecond
	retryEvery   = time.Second
	dialTimeout  = 10 * time.Second // of one attempt
	patience     = 150 * time.Second
	tcpKeepAlive = 15 * time.Second
)

type attempt struct {
	index int
	conn  net.Conn
	err   error
}

func (d *dialer) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	attempts := make(chan attempt)
	start, launched, ended := int(d.last.Load()), 0, 0
	defer func() {
		cancel()
		// Losers that connect after all are closed.
		go func(pending int) {
			for range pending {
				if late := <-attempts; late.conn != nil {
					_ = late.conn.Close()
				}
			}
		}(launched - ended)
	}()
	tick := time.NewTicker(headStart)
	defer tick.Stop()
	var latest time.Time
	launch := func() {
		index := (start + launched) % len(d.servers)
		launched, latest = launched+1, time.Now()
		go func() {
			conn, err := d.shake(ctx, d.servers[index])
			attempts <- attempt{index, conn, err}
		}()
	}
	launch()
	var firstErr error
	strangers := 0
	for {
		select {
		case a := <-attempts:
			ended++
			if a.err == nil {
				d.last.Store(int64(a.index))
				return a.conn, nil
			}
			if firstErr == nil {
				firstErr = a.err
			}
			if strange(a.err) {
				strangers++
			}
			switch {
			case strangers >= len(d.servers): // they are there, and stay who they are
				return nil, d.failed(firstErr)
			case launched < len(d.servers):
				launch()
			}
		case <-tick.C:
			if launched < len(d.servers) || time.Since(latest) >= retryEvery {
				launch()
			}
		case <-ctx.Done():
			if firstErr == nil {
				firstErr = ctx.Err()
			}
			return nil, d.failed(firstErr)
		}
	}
}

func (d *dialer) failed(err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: &unreachable{d.servers, err}}
}

// strange says that a server is there, and that it is not one of ours or does not take us.
func strange(err error) bool {
	var verify *tls.CertificateVerificationError
	var alert tls.AlertError
	return errors.As(err, &verify) || errors.As(err, &alert)
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
func (d *dialer) shake(ctx context.Context, server string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	plain, err := (&net.Dialer{KeepAlive: tcpKeepAlive}).DialContext(ctx, "tcp", server)
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
