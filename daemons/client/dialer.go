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

// dialer connects to the first of several servers that completes a TLS handshake. It starts with the last one that did.
// An accepted connection alone proves nothing, because the kernel accepts connections for a process that hangs.
type dialer struct {
	servers     []string
	tls         *tls.Config
	lastWorking atomic.Int64

	failureTimeout time.Duration
}

func newDialer(servers []string, verify *tls.Config) *dialer {
	return &dialer{servers: servers, tls: verify, failureTimeout: defaultFailureTimeout}
}

// Timing of dials. A dead server should cost little time, and a slow one should not be given up. So after headStart the
// next server is tried in parallel, and the first that answers is used. If none answers, a dial continues for
// failureTimeout.
// A watcher whose dial fails waits longer each time, up to a minute, and would notice a recovered server that much
// later. Its back-off resets after two minutes without a failure, which is less than failureTimeout.
const (
	headStart             = 300 * time.Millisecond
	retryInterval         = time.Second
	dialTimeout           = 10 * time.Second // limit of one attempt
	defaultFailureTimeout = 150 * time.Second
	tcpKeepAlive          = 15 * time.Second
)

type attempt struct {
	index int
	conn  net.Conn
	err   error
}

func (d *dialer) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.failureTimeout)
	attempts := make(chan attempt)
	start, launched, ended := int(d.lastWorking.Load()), 0, 0
	defer func() {
		cancel()
		// Close connections of attempts that succeed too late.
		go func(pending int) {
			for range pending {
				if timedOut := <-attempts; timedOut.conn != nil {
					_ = timedOut.conn.Close()
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
			conn, err := d.handshake(ctx, d.servers[index])
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
				d.lastWorking.Store(int64(a.index))
				return a.conn, nil
			}
			if firstErr == nil {
				firstErr = a.err
			}
			if isCertificateRejected(a.err) {
				strangers++
			}
			switch {
			case strangers >= len(d.servers): // all servers are reachable and reject us, which will not change
				return nil, d.failed(firstErr)
			case launched < len(d.servers):
				launch()
			}
		case <-tick.C:
			if launched < len(d.servers) || time.Since(latest) >= retryInterval {
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
	return &net.OpError{Op: "dial", Net: "tcp", Err: &unreachableError{d.servers, err}}
}

// isCertificateRejected reports whether a server is reachable but its certificate is invalid, or it rejects ours.
func isCertificateRejected(err error) bool {
	var verify *tls.CertificateVerificationError
	var alert tls.AlertError
	return errors.As(err, &verify) || errors.As(err, &alert)
}

// unreachableError means that none of the servers answers. To callers it looks like a refused connection, whatever the
// cause. After that error a client's watch waits and continues, while after others it would list all objects again.
type unreachableError struct {
	servers []string
	err     error
}

func (u *unreachableError) Error() string {
	return fmt.Sprintf("no API server of %v answers: %v", u.servers, u.err)
}
func (u *unreachableError) Unwrap() []error { return []error{syscall.ECONNREFUSED, u.err} }

// handshake connects to a server and completes the TLS handshake.
func (d *dialer) handshake(ctx context.Context, server string) (net.Conn, error) {
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
