// Package client is how a daemon reaches the API: credentials from a kubeconfig,
// a dialer that finds a living API server among several, shared watch caches and
// leader election (client-go inside). What is asked for is the daemon's own business.
package client

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/daemons/client/h2"
)

// Options says where the API is and who asks.
type Options struct {
	Kubeconfig string   // path; required
	APIServers []string // host:port of every API server, tried in turn; the kubeconfig's server when empty
	UserAgent  string   // the daemon's name
	JSON       bool     // speak JSON instead of protobuf
	// leave the kubeconfig's credentials out, for who brings tokens: a certificate on the connection would count
	// instead
	Anonymous bool

	Metrics prometheus.Registerer // where requests are counted; nil means nowhere
}

// serverName is a name that every API server's certificate carries, so that a
// connection is good whichever of them it reaches.
const serverName = "kubernetes"

// Config returns a REST configuration without client-side rate limits. With
// APIServers, every new connection goes to the server that last answered and, when
// it does not, to the next one; a connection whose server has fallen silent is given up.
func Config(o Options) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", o.Kubeconfig, err)
	}
	if o.Anonymous {
		cfg = rest.AnonymousClientConfig(cfg)
	}
	if cfg.Proxy == nil { // the environment's proxy cannot reach the cluster's machines
		cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	cfg.QPS = -1
	cfg.UserAgent = o.UserAgent
	cfg.WarningHandler = rest.NoWarnings{} // what is doubtful about objects was told to those who wrote them
	cfg.Timeout = 0                        // watches are long; callers bound each request by its context
	if !o.JSON {
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	if len(o.APIServers) > 0 {
		if err := spread(cfg, o.APIServers, serverName); err != nil {
			return nil, fmt.Errorf("use the credentials of kubeconfig %s: %w", o.Kubeconfig, err)
		}
	}
	if o.Metrics != nil {
		counts, err := countRequests(o.Metrics)
		if err != nil {
			return nil, err
		}
		cfg.Wrap(func(to http.RoundTripper) http.RoundTripper { return observed{requests: counts, to: to} })
	}
	return cfg, nil
}

// A server that hangs or is off the network says nothing, and a request or a watch would
// wait for it for ever: a connection on which nothing comes is asked whether the other end is there, and given up
// when it is not. Then the request fails, or the watch goes on at its place, at another server.
const (
	silence = time.Second // after which the other end is asked
	grace   = time.Second // that it has to say so
)

// idle is how long a connection is kept on which nothing is asked.
const idle = 90 * time.Second

// spread makes cfg reach whichever of the servers answers, each of which has a certificate for a name.
func spread(cfg *rest.Config, servers []string, name string) error {
	cfg.ServerName = name
	verify, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return err
	}
	verify.NextProtos = []string{"h2"}
	verify.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	cfg.Host = "https://" + name + ":6443"
	cfg.TLSClientConfig = rest.TLSClientConfig{} // the transport has it
	cfg.Transport = &h2.Transport{Dial: newDialer(servers, verify).dial, Silence: silence, Grace: grace, Idle: idle}
	return nil
}
