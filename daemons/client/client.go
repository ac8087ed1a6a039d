// Package client connects a daemon to the API. It provides credentials from a kubeconfig, a dialer that finds a live
// API server among several, shared watch caches and leader election.
package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/daemons/client/h2"
	"clusterctl/daemons/libraries"
)

// Options defines how to reach the API, and as which user.
type Options struct {
	Kubeconfig string   // path; required
	APIServers []string // host:port of every API server; if empty, the kubeconfig's server is used
	UserAgent  string   // the daemon's name
	JSON       bool     // use JSON instead of protobuf
	// Anonymous omits the kubeconfig's credentials, for callers that send tokens: a client certificate would take
	// precedence over them.
	Anonymous bool

	Metrics prometheus.Registerer // registry for metrics of requests; nil means none
}

// serverName is a name in every API server's certificate, so that a connection to any of them is valid.
const serverName = "kubernetes"

// Config returns a REST configuration without client-side rate limits. With APIServers, each new connection goes to the
// server that answered last, or else to the next one. A connection whose server stops responding is closed.
func Config(o Options) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", o.Kubeconfig, err)
	}
	if o.Anonymous {
		cfg = rest.AnonymousClientConfig(cfg)
	}
	if cfg.Proxy == nil { // a proxy from the environment cannot reach the cluster's machines
		cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	cfg.QPS = -1
	cfg.UserAgent = o.UserAgent
	cfg.WarningHandler = rest.NoWarnings{} // warnings are for the users who write objects
	cfg.Timeout = 0                        // watches take long; callers bound each request by its context
	if !o.JSON {
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	if len(o.APIServers) > 0 {
		if err := useServers(cfg, o.APIServers, serverName); err != nil {
			return nil, fmt.Errorf("use the credentials of kubeconfig %s: %w", o.Kubeconfig, err)
		}
	}
	if o.Metrics != nil {
		counts, err := newRequestMetrics(o.Metrics)
		if err != nil {
			return nil, err
		}
		cfg.Wrap(func(to http.RoundTripper) http.RoundTripper {
			return countingTransport{requestMetrics: counts, transport: to}
		})
	}
	return cfg, nil
}

// A server that hangs or is unreachable sends nothing, and a request or watch would wait for ever. So after pingAfter
// without data the client sends a ping, and closes the connection if no answer arrives. The request then fails, or the
// watch continues at another server.
const (
	pingAfter   = time.Second // time without data before a ping is sent
	pingTimeout = time.Second // time for the answer to a ping
)

// idleTimeout is how long an unused connection is retained.
const idleTimeout = 90 * time.Second

// useServers makes cfg connect to any of the servers. Each has a certificate for name.
func useServers(cfg *rest.Config, servers []string, name string) error {
	cfg.ServerName = name
	verify, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return err
	}
	verify.NextProtos = []string{"h2"}
	verify.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	cfg.Host = "https://" + name + ":6443"
	cfg.TLSClientConfig = rest.TLSClientConfig{} // the transport contains it
	dial := newDialer(servers, verify).dial
	if libraries.Selected {
		cfg.Transport = newLibraryTransport(dial)
	} else {
		cfg.Transport = &h2.Transport{Dial: dial, Silence: pingAfter, Grace: pingTimeout, Idle: idleTimeout}
	}
	return nil
}

// newLibraryTransport returns a transport of golang.org/x/net that replaces package h2.
func newLibraryTransport(dial func(context.Context) (net.Conn, error)) *http2.Transport {
	return &http2.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string, _ *tls.Config) (net.Conn, error) {
			return dial(ctx)
		},
		DisableCompression: true,
		ReadIdleTimeout:    pingAfter,
		PingTimeout:        pingTimeout,
		IdleConnTimeout:    idleTimeout,
	}
}
