package upstream

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/run/measure"
)

// metrics holds the metrics, with CoreDNS' names because dashboards use them.
type metrics struct {
	lookups, misses, stale, allFailed, rejected prometheus.Counter
	hits                                        [2]prometheus.Counter // success, denial
	requests, responses, failures               *prometheus.CounterVec
	duration, proxied                           *prometheus.HistogramVec
	cache                                       *cache
	entries, evictions                          *prometheus.Desc
}

// buckets are the buckets of CoreDNS' duration histograms, in seconds.
var buckets = prometheus.ExponentialBuckets(0.00025, 2, 16)

func newMetrics(r *Resolver) *metrics {
	fixed := prometheus.Labels{"server": r.cfg.Name, "zones": ".", "view": ""}
	counter := func(name, help string, labels prometheus.Labels) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	hits := prometheus.Labels{"server": r.cfg.Name, "zones": ".", "view": "", "type": "success"}
	denials := prometheus.Labels{"server": r.cfg.Name, "zones": ".", "view": "", "type": "denial"}
	return &metrics{
		lookups: counter("coredns_cache_requests_total", "Questions that were looked for among kept answers.", fixed),
		misses:  counter("coredns_cache_misses_total", "Questions to which no answer was kept.", fixed),
		stale: counter("coredns_cache_served_stale_total", "Answers that were given although they were out of date.",
			fixed),
		hits: [2]prometheus.Counter{
			counter("coredns_cache_hits_total", "Answers that were kept.", hits),
			counter("coredns_cache_hits_total", "Answers that were kept.", denials),
		},
		allFailed: counter("coredns_forward_healthcheck_broken_total", "How often all other servers had failed.", nil),
		rejected: counter("coredns_forward_max_concurrent_rejects_total",
			"Questions that were refused because too many were open.", nil),
		requests: vector("coredns_forward_requests_total", "Questions to each other server.", "to"),
		responses: vector("coredns_forward_responses_total", "Answers of each other server by their code.", "to",
			"rcode"),
		failures: vector("coredns_forward_healthcheck_failures_total", "Probes that each other server did not answer.",
			"to"),
		duration: measure.NewHistogramVec(prometheus.HistogramOpts{Name: "coredns_forward_request_duration_seconds",
			Help: "How long each other server took.", Buckets: buckets}, []string{"to", "rcode"}),
		proxied: measure.NewHistogramVec(prometheus.HistogramOpts{Name: "coredns_proxy_request_duration_seconds",
			Help: "How long each other server took.", Buckets: buckets}, []string{"proxy_name", "to", "rcode"}),
		cache:   r.cache,
		entries: prometheus.NewDesc("coredns_cache_entries", "Answers that are kept.", []string{"type"}, fixed),
		evictions: prometheus.NewDesc("coredns_cache_evictions_total", "Answers that had to go for want of room.", nil,
			fixed),
	}
}

func (m *metrics) recordHit(found *Response) {
	if found.isNegative() {
		m.hits[1].Inc()
	} else {
		m.hits[0].Inc()
	}
}

// recordQuery records a query to a server. code is empty if there was no response.
func (m *metrics) recordQuery(to, code string, took time.Duration) {
	m.requests.WithLabelValues(to).Inc()
	if code != "" {
		m.responses.WithLabelValues(to, code).Inc()
		m.duration.WithLabelValues(to, code).Observe(took.Seconds())
		m.proxied.WithLabelValues("forward", to, code).Observe(took.Seconds())
	}
}

// removeSeries removes the series of servers that are no longer used.
func (m *metrics) removeSeries(before, after *pools) {
	for addr := range before.byAddr {
		if after.byAddr[addr] == nil {
			removed := prometheus.Labels{"to": addr}
			m.requests.DeletePartialMatch(removed)
			m.responses.DeletePartialMatch(removed)
			m.failures.DeletePartialMatch(removed)
			m.duration.DeletePartialMatch(removed)
			m.proxied.DeletePartialMatch(removed)
		}
	}
}

// Describe implements prometheus.Collector.
func (r *Resolver) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, to) }

// Collect implements prometheus.Collector.
func (r *Resolver) Collect(to chan<- prometheus.Metric) {
	m := r.metrics
	for _, c := range []prometheus.Collector{m.lookups, m.misses, m.stale, m.hits[0], m.hits[1], m.allFailed,
		m.rejected,
		m.requests, m.responses, m.failures, m.duration, m.proxied} {
		c.Collect(to)
	}
	answers, denials, evicted := m.cache.sizes()
	to <- prometheus.MustNewConstMetric(m.entries, prometheus.GaugeValue, float64(answers), "success")
	to <- prometheus.MustNewConstMetric(m.entries, prometheus.GaugeValue, float64(denials), "denial")
	to <- prometheus.MustNewConstMetric(m.evictions, prometheus.CounterValue, float64(evicted))
}
