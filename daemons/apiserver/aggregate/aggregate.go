// Package aggregate forwards requests to other API servers, which APIServices register, and registers the group
// versions that this server serves itself.
package aggregate

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/backend"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/kinds"
)

// Version is a group version that another server serves.
type Version struct {
	target            backend.Target
	Handle            request.Handler
	Resources         []metav1.APIResource // as listed by that server at its last check
	Documents         Documents            // fetched at the same check
	UnavailableReason string               // why requests are not passed on; empty if they are
}

// Server is what the aggregator needs from the API server.
type Server interface {
	// Target returns a resource that this server serves.
	Target(gvr schema.GroupVersionResource) request.Target
	// ServeAggregated passes group versions on to other servers.
	ServeAggregated(all map[schema.GroupVersion]*Version)
	// AggregatedVersions returns the group versions that are passed on. The caller must not change them.
	AggregatedVersions() map[schema.GroupVersion]*Version
}

// Writer makes the server's own writes.
type Writer interface {
	// Ensure creates an object, or completes the existing one.
	Ensure(ctx context.Context, obj runtime.Object) (int64, error)
	// Change changes an object. next returns the new object for the stored one, which is nil if there is none.
	Change(ctx context.Context, o write.Own, next func(live runtime.Object) (runtime.Object, error)) (
		*cache.Entry, error)
	// Remove deletes an object. isGone reports whether nothing delays its removal.
	Remove(ctx context.Context, served wire.Served, namespace, name string, o *metav1.DeleteOptions) (
		isGone bool, err error)
}

// Config configures an Aggregator.
type Config struct {
	Cache    *cache.Cache
	Writes   Writer
	Backends *backend.Connector
	BuiltIn  []*kinds.Kind
	Now      func() time.Time
	Log      *slog.Logger
	// Bootstrapped is closed when the bootstrap objects exist. Changed gets a value when the declared kinds have
	// changed.
	Bootstrapped, Changed <-chan struct{}

	// FrontProxy returns the client certificate for aggregated servers. It makes them trust the headers that name the
	// user; nil presents no certificate.
	FrontProxy func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// ClusterCA returns the PEM certificates of the authorities that sign the cluster's own servers. They are trusted
	// for aggregated API servers whose APIService has no caBundle, in addition to the system's authorities. nil adds
	// none.
	ClusterCA func() []byte
}

// Aggregator checks the servers behind APIServices, and forwards requests to them.
type Aggregator struct {
	config      Config
	server      Server
	unavailable *prometheus.CounterVec // how often aggregated servers were found unavailable
}

// New returns the aggregator of the server s.
func New(c Config, s Server) *Aggregator {
	return &Aggregator{config: c, server: s, unavailable: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "aggregator_unavailable_apiservice_total", Help: "How often the server of an APIService was found " +
			"unavailable.",
	}, []string{"name", "reason"})}
}

// Metrics returns the metrics of aggregated servers.
func (s *Aggregator) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.unavailable, unavailableCollector{s, prometheus.NewDesc(
		"aggregator_unavailable_apiservice", "1 while the server of an APIService is unavailable.", []string{"name"},
		nil)}}
}
