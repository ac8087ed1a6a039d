// Package stream connects clients with the servers of pods, nodes and services: logs, exec, attach, port-forward and
// proxying.
package stream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/request"
)

// Server is what streams need from the API server.
type Server interface {
	// WaitForCurrent waits until the cache has all earlier writes.
	WaitForCurrent(ctx context.Context) error
	// AuthorizeCreate returns an error if the user may not create the resource that the request names. The server has
	// authorized only the verb of the HTTP method, and a stream to a container can start with a GET.
	AuthorizeCreate(q *request.Request) error
	// AdmitsConnect reports whether any policy or webhook may see a connect request.
	AdmitsConnect() bool
	// AdmitConnect passes a connect request to policies and webhooks.
	AdmitConnect(q *request.Request, kind schema.GroupVersionKind, options runtime.Object) error
}

// Config configures Streams.
type Config struct {
	Objects api.Objects
	Log     *slog.Logger

	// KubeletTLS configures connections to kubelets: the trusted authorities and the server's own certificate. If it is
	// nil, logs, exec and the like are refused.
	KubeletTLS *tls.Config
	// KubeletRoots returns the authorities that verify a new connection to a kubelet; nil means those of KubeletTLS.
	KubeletRoots func() *x509.CertPool
}

// Streams answers requests for subresources whose response comes from another server.
type Streams struct {
	config       Config
	server       Server
	kubelets     kubeletTransports
	podTransport *http.Transport // to pods and services
	// Streams over WebSockets, by their outcome.
	translated, tunnelled *prometheus.CounterVec
}

// New returns Streams that ask the server s.
func New(c Config, s Server) *Streams {
	return &Streams{
		config: c, server: s, podTransport: newPodTransport(),
		translated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_stream_translator_requests_total", Help: "Requests to exec and attach over a " +
				"WebSocket's channels.",
		}, []string{"code"}),
		tunnelled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_stream_tunnel_requests_total", Help: "Requests to forward ports over SPDY within a " +
				"WebSocket.",
		}, []string{"code"}),
	}
}

// Metrics returns the metrics of streams.
func (s *Streams) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.translated, s.tunnelled}
}
