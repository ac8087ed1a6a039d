package workload

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// servers are the API servers of a cluster, any of which will do. That one accepts a connection says
// little: the kernel accepts for a process that hangs.
type servers struct {
	list []string // host:port
	tls  *tls.Config
	last atomic.Int64 // the one that answered last
}

// A server that is gone should cost little, a slow one should not be given up: the next is tried after a
// head start, and whichever greets first is taken. A connection on which nothing comes is asked
// whether the other end is there, and given up when it is not.
const (
	headStart   = 500 * time.Millisecond
	dialTimeout = 10 * time.Second
	quiet       = 2 * time.Second
	answering   = 3 * time.Second
)

// reach makes cfg speak with whichever of the servers answers.
func reach(cfg *rest.Config, list []string) error {
	verify, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return err
	}
	verify.NextProtos = []string{"h2", "http/1.1"}
	cfg.TLSClientConfig = rest.TLSClientConfig{} // the transport has it
	s := &servers{list: list, tls: verify}
	cfg.Transport = &http.Transport{
		DialTLSContext: s.dial, TLSClientConfig: verify, ForceAttemptHTTP2: true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: quiet, PingTimeout: answering},
		MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
	}
	return nil
}

// dial returns a connection to the first server that greets, beginning with the one that did last.
func (s *servers) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	type greeting struct {
		server int
		conn   net.Conn
		err    error
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	greetings := make(chan greeting)
	begin := func(server int) {
		all.Go(func() {
			conn, err := s.greet(ctx, network, s.list[server])
			select {
			case greetings <- greeting{server, conn, err}:
			case <-ctx.Done():
				if conn != nil {
					_ = conn.Close() // another was faster
				}
			}
		})
	}
	first := int(s.last.Load())
	next := time.NewTicker(headStart)
	defer next.Stop()
	begin(first)
	var errs []error
	for begun, ended := 1, 0; ended < len(s.list); {
		more := false
		select {
		case g := <-greetings:
			if g.err == nil {
				s.last.Store(int64(g.server))
				return g.conn, nil
			}
			errs, more = append(errs, g.err), true
			ended++
		case <-next.C:
			more = true
		case <-ctx.Done():
			return nil, errors.Join(append(errs, ctx.Err())...)
		}
		if more && begun < len(s.list) {
			begin((first + begun) % len(s.list))
			begun++
		}
	}
	return nil, errors.Join(errs...)
}

// greet connects to one server and verifies it.
func (s *servers) greet(ctx context.Context, network, server string) (net.Conn, error) {
	plain, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(plain, s.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, fmt.Errorf("greet %s: %w", server, err)
	}
	return conn, nil
}
