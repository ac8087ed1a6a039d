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

// servers are the API servers of a cluster, of which any will do. An accepted TCP connection does not prove that a
// server works, because the kernel also accepts for a process that hangs.
type servers struct {
	list      []string // host:port
	tls       *tls.Config
	lastIndex atomic.Int64 // index of the server that answered last
}

// A dead server should cost little time, and a slow one should not be given up. The next server is tried after
// headStart, and the first one that completes the TLS handshake is used. A connection without traffic is checked with a
// ping and closed if there is no answer.
const (
	headStart     = 500 * time.Millisecond
	dialTimeout   = 10 * time.Second
	quietTimeout  = 2 * time.Second
	answerTimeout = 3 * time.Second
)

// useServers makes cfg connect to whichever of the servers answers.
func useServers(cfg *rest.Config, list []string) error {
	verify, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return err
	}
	verify.NextProtos = []string{"h2", "http/1.1"}
	cfg.TLSClientConfig = rest.TLSClientConfig{} // the transport contains it
	s := &servers{list: list, tls: verify}
	cfg.Transport = &http.Transport{
		DialTLSContext: s.dial, TLSClientConfig: verify, ForceAttemptHTTP2: true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: quietTimeout, PingTimeout: answerTimeout},
		MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
	}
	return nil
}

// dial returns a connection to the first server that completes the handshake. It starts with the server that answered
// last.
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
			conn, err := s.handshake(ctx, network, s.list[server])
			select {
			case greetings <- greeting{server, conn, err}:
			case <-ctx.Done():
				if conn != nil {
					_ = conn.Close() // another server was faster
				}
			}
		})
	}
	first := int(s.lastIndex.Load())
	next := time.NewTicker(headStart)
	defer next.Stop()
	begin(first)
	var errs []error
	for started, ended := 1, 0; ended < len(s.list); {
		more := false
		select {
		case g := <-greetings:
			if g.err == nil {
				s.lastIndex.Store(int64(g.server))
				return g.conn, nil
			}
			errs, more = append(errs, g.err), true
			ended++
		case <-next.C:
			more = true
		case <-ctx.Done():
			return nil, errors.Join(append(errs, ctx.Err())...)
		}
		if more && started < len(s.list) {
			begin((first + started) % len(s.list))
			started++
		}
	}
	return nil, errors.Join(errs...)
}

// handshake connects to one server and completes the TLS handshake.
func (s *servers) handshake(ctx context.Context, network, server string) (net.Conn, error) {
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
