package dns

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/dns/wire"
	"clusterctl/daemons/run/measure"
	"clusterctl/daemons/version"
)

// source is the source of an answer. Its names are those of CoreDNS' plugins.
type source int

const (
	sourceNone source = iota
	sourceCluster
	sourceForward
	sourceCache
	sourceCount
)

var sourcePlugins = [sourceCount]string{"", "kubernetes", "forward", "cache"}

// countedTypes are the query types that are counted by name. All others are counted as "other".
var countedTypes = []uint16{
	dns.TypeA,
	dns.TypeAAAA,
	dns.TypeTXT,
	dns.TypeSOA,
	dns.TypeNS,
	dns.TypePTR,
	dns.TypeMX,
	dns.TypeSRV,
	dns.TypeCNAME,
	dns.TypeDS,
	dns.TypeDNSKEY,
	dns.TypeRRSIG,
	dns.TypeNSEC,
	dns.TypeNSEC3,
	dns.TypeSVCB,
	dns.TypeHTTPS,
	dns.TypeIXFR,
	dns.TypeAXFR,
	dns.TypeANY,
}

// typeIndex maps types below 256 to their index in types plus one.
var typeIndex = func() (index [256]uint8) {
	for i, t := range countedTypes {
		index[t] = uint8(i + 1)
	}
	return index
}()

func typeName(index int) string {
	if index == 0 {
		return "other"
	}
	return dns.TypeToString[countedTypes[index-1]]
}

const codeCount = wire.BadVersion + 1

// metrics holds the metrics, with CoreDNS' names because dashboards use them. Series are looked up once, so that a
// query only costs their increments.
type metrics struct {
	name, domain                string
	panics                      prometheus.Counter
	refusedClients              prometheus.Counter
	dnssecRequests              *prometheus.CounterVec
	requests                    *prometheus.CounterVec
	responses                   *prometheus.CounterVec
	duration                    *prometheus.HistogramVec
	requestSizes, responseSizes *prometheus.HistogramVec
	collectors                  []prometheus.Collector

	requestSeries  [2][2][2][32]series[prometheus.Counter] // by zone, protocol, family, type
	responseSeries [2][codeCount][sourceCount]series[prometheus.Counter]
	durationSeries [2]series[prometheus.Observer]
	sizeSeries     [2][2][2]series[prometheus.Observer] // by query or response, zone, protocol
	dnssecSeries   [2]series[prometheus.Counter]
}

// series is a lazily created time series.
type series[T any] struct{ pointer atomic.Pointer[T] }

func (s *series[T]) get(find func() T) T {
	if p := s.pointer.Load(); p != nil {
		return *p
	}
	one := find()
	s.pointer.Store(&one)
	return one
}

func newMetrics(name, domain string) *metrics {
	zone := []string{"server", "zone", "view"}
	with := func(more ...string) []string { return append(zone[:len(zone):len(zone)], more...) }
	sizes := []float64{0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3}
	t := &metrics{
		name: name, domain: domain,
		refusedClients: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "coredns_acl_blocked_requests_total",
				Help: "Queries of clients from outside of the cluster and of the networks that are allowed, " +
					"which were refused, or not answered while the machines were not known yet.",
				ConstLabels: prometheus.Labels{"server": name, "zone": ".", "view": ""},
			},
		),
		panics: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "coredns_panics_total", Help: "Queries at which the server failed."},
		),
		requests: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "coredns_dns_requests_total",
				Help: "Queries by protocol, family of addresses and type.",
			},
			with("proto", "family", "type"),
		),
		responses: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "coredns_dns_responses_total", Help: "Answers by their code."},
			with("rcode", "plugin"),
		),
		dnssecRequests: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "coredns_dns_do_requests_total",
				Help: "Queries for DNSSEC's records as well.",
			},
			zone,
		),
		duration: measure.NewHistogramVec(
			prometheus.HistogramOpts{Name: "coredns_dns_request_duration_seconds", Help: "How long answers took.",
				Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16)},
			zone,
		),
		requestSizes: measure.NewHistogramVec(
			prometheus.HistogramOpts{Name: "coredns_dns_request_size_bytes", Help: "Size of queries.", Buckets: sizes},
			with("proto"),
		),
		responseSizes: measure.NewHistogramVec(
			prometheus.HistogramOpts{Name: "coredns_dns_response_size_bytes", Help: "Size of answers.", Buckets: sizes},
			with("proto"),
		),
	}
	t.collectors = []prometheus.Collector{
		t.panics,
		t.refusedClients,
		t.requests,
		t.responses,
		t.dnssecRequests,
		t.duration,
		t.requestSizes,
		t.responseSizes,
		newBuildInfo(),
		newEnabledPlugins(name, with("name")),
	}
	// Create the series that alerts and dashboards divide by.
	t.requests.WithLabelValues(name, domain, "", "udp", "1", "A")
	t.responses.WithLabelValues(name, domain, "", "NOERROR", sourcePlugins[sourceCluster])
	t.responses.WithLabelValues(name, ".", "", "SERVFAIL", sourcePlugins[sourceForward])
	t.duration.WithLabelValues(name, domain, "")
	t.duration.WithLabelValues(name, ".", "")
	return t
}

// newBuildInfo returns the metric that names the version of the server.
func newBuildInfo() prometheus.Gauge {
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "coredns_build_info", Help: "Which release this is.",
		ConstLabels: prometheus.Labels{
			"version":   version.Kubernetes,
			"revision":  version.Version,
			"goversion": runtime.Version(),
		}})
	build.Set(1)
	return build
}

// newEnabledPlugins returns the metric that lists what the server does, by the names of CoreDNS' plugins.
func newEnabledPlugins(server string, labels []string) *prometheus.GaugeVec {
	enabled := prometheus.NewGaugeVec(
		prometheus.GaugeOpts{
			Name: "coredns_plugin_enabled",
			Help: "What the server does, by the name of CoreDNS' plugin for it.",
		},
		labels,
	)
	for _, plugin := range []string{"acl", "cache", "errors", "forward", "health", "kubernetes", "loadbalance", "loop",
		"prometheus", "ready"} {
		enabled.WithLabelValues(server, ".", "", plugin).Set(1)
	}
	return enabled
}

var protocols, families = [2]string{"udp", "tcp"}, [2]string{"1", "2"}

// observe records the metrics of an answer.
func (t *metrics) observe(w *workspace, c sender, size int, start time.Time) {
	q, zone, proto, family, kind := &w.query, 0, 0, 0, 0
	name := "."
	if w.outcome.cluster {
		zone, name = 1, t.domain
	}
	if c.tcp {
		proto = 1
	}
	if a := c.addr.Addr(); a.Is6() && !a.Is4In6() {
		family = 1
	}
	if q.Type < 256 {
		kind = int(typeIndex[q.Type])
	}
	t.requestSeries[zone][proto][family][kind].get(func() prometheus.Counter {
		return t.requests.WithLabelValues(t.name, name, "", protocols[proto], families[family], typeName(kind))
	}).Inc()
	t.responseSeries[zone][w.outcome.code][w.outcome.source].get(func() prometheus.Counter {
		return t.responses.WithLabelValues(t.name, name, "", codeName(w.outcome.code), sourcePlugins[w.outcome.source])
	}).Inc()
	t.durationSeries[zone].get(func() prometheus.Observer { return t.duration.WithLabelValues(t.name, name, "") }).
		Observe(time.Since(start).Seconds())
	t.sizeSeries[0][zone][proto].get(func() prometheus.Observer {
		return t.requestSizes.WithLabelValues(t.name, name, "",
			protocols[proto])
	}).
		Observe(float64(q.Length))
	t.sizeSeries[1][zone][proto].get(func() prometheus.Observer {
		return t.responseSizes.WithLabelValues(t.name, name, "",
			protocols[proto])
	}).
		Observe(float64(size))
	if q.DO {
		t.dnssecSeries[zone].get(func() prometheus.Counter {
			return t.dnssecRequests.WithLabelValues(t.name, name,
				"")
		}).Inc()
	}
}
