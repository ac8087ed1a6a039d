// Package client is how a daemon reaches the API: credentials from a kubeconfig,
// a dialer that finds a living API server among several, shared watch caches and
// leader election (client-go inside). What is asked for is the daemon's own business.
package client

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options says where the API is and who asks.
type Options struct {
	Kubeconfig string   // path; required
	APIServers []string // host:port of every API server, tried in turn; the kubeconfig's server when empty
	UserAgent  string   // the daemon's name
	JSON       bool     // speak JSON instead of protobuf
}

// serverName is a name that every API server's certificate carries, so that a
// connection is good whichever of them it reaches.
const serverName = "kubernetes"

// Config returns a REST configuration without client-side rate limits. With
// APIServers, every new connection goes to the server that last answered and, when
// it does not, to the next one.
func Config(o Options) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", o.Kubeconfig, err)
	}
	cfg.QPS = -1
	cfg.UserAgent = o.UserAgent
	cfg.Timeout = 0 // watches are long; callers bound each request by its context
	if !o.JSON {
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	if len(o.APIServers) > 0 {
		cfg.Host = "https://" + serverName + ":6443"
		cfg.ServerName = serverName
		cfg.Dial = (&dialer{servers: o.APIServers}).dial
	}
	return cfg, nil
}

// dialer connects to the first of several servers that accepts, starting at the
// one that last did.
type dialer struct {
	servers []string
	last    atomic.Int64
}

// A server that is gone should cost little, a slow one should not be given up:
// the next is tried after head start, and whichever accepts first is taken.
const headStart = 300 * time.Millisecond

func (d *dialer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
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
			conn, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, network, d.servers[index])
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
				return nil, fmt.Errorf("no API server of %v accepts: %w", d.servers, firstErr)
			}
		case <-next.C:
			if launched < len(d.servers) {
				launch()
			}
		}
	}
}
