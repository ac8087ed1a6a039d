package proxy

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/ingress/route"
)

// counters are the metrics of an engine. Their labels are names of objects, or from closed sets.
type counters struct {
	accepted, handshakes, closedForRoom atomic.Uint64
	// refusedConns and refusedCalls count connections and requests beyond the limit of their client, or of all clients.
	refusedConns, refusedCalls atomic.Uint64
	mu                         sync.Mutex
	rules                      map[route.Source]*counter
	unmatched                  counter // requests that match no rule
}

// bucketBounds are the upper bounds of the histogram's buckets.
var bucketBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second,
}

// counter holds the counts of one source.
type counter struct {
	classes [6]atomic.Uint64 // by first digit of the status
	buckets [len(bucketBounds) + 1]atomic.Uint64
	sum     atomic.Int64
	bytes   atomic.Int64
}

func (c *counter) observe(status int, took time.Duration, sent int64) {
	c.classes[min(max(status/100, 0), 5)].Add(1)
	i := 0
	for i < len(bucketBounds) && took > bucketBounds[i] {
		i++
	}
	c.buckets[i].Add(1)
	c.sum.Add(int64(took))
	c.bytes.Add(sent)
}

// Counter returns the counter of a source. It creates it if necessary.
func (e *Engine) Counter(s route.Source) any {
	e.counters.mu.Lock()
	defer e.counters.mu.Unlock()
	c := e.counters.rules[s]
	if c == nil {
		if e.counters.rules == nil {
			e.counters.rules = map[route.Source]*counter{}
		}
		c = &counter{}
		e.counters.rules[s] = c
	}
	return c
}

// RemoveCounters removes the counters of the sources for which stays returns false.
func (e *Engine) RemoveCounters(stays func(route.Source) bool) {
	e.counters.mu.Lock()
	defer e.counters.mu.Unlock()
	for s := range e.counters.rules {
		if !stays(s) {
			delete(e.counters.rules, s)
		}
	}
}

// RemoveCounter removes the counter of one source.
func (e *Engine) RemoveCounter(s route.Source) {
	e.counters.mu.Lock()
	defer e.counters.mu.Unlock()
	delete(e.counters.rules, s)
}

// record counts and logs a completed request.
func (c *conn) record() {
	now := c.e.clock()
	took := time.Duration(now - c.start)
	counter := counterOf(c.e, c.rule)
	counter.observe(c.status, took, c.sent)
	if c.e.log == nil {
		return
	}
	line := logEntry{
		client:   c.ip,
		method:   c.req.method,
		host:     c.req.host,
		target:   c.req.target,
		protocol: "HTTP/1.1",
		status:   c.status,
		sent:     c.sent,
		duration: took,
	}
	if c.req.minor == 0 {
		line.protocol = "HTTP/1.0"
	}
	line.setRoute(c.rule, c.backend)
	c.e.log.add(&line)
}

func (l *logEntry) setRoute(rule *route.Rule, ep *endpoint) {
	if rule != nil {
		l.rule, l.service = rule.Source.Namespace+"/"+rule.Source.Name, rule.Source.Service
	}
	if ep != nil {
		l.endpoint = ep.addrText
	}
}

func counterOf(e *Engine, rule *route.Rule) *counter {
	if rule != nil {
		if c, ok := rule.Counter.(*counter); ok {
			return c
		}
	}
	return &e.counters.unmatched
}

var (
	metricLabels = []string{"namespace", "ingress", "service"}
	requestsDesc = prometheus.NewDesc("nginx_ingress_controller_requests", "Requests by the class of their status.",
		append(metricLabels[:3:3], "status"), nil)
	secondsDesc = prometheus.NewDesc("nginx_ingress_controller_request_duration_seconds",
		"Time from a request's head to the end of its answer.", metricLabels, nil)
	bytesDesc = prometheus.NewDesc("nginx_ingress_controller_response_bytes_total", "Bytes of answers' bodies.",
		metricLabels, nil)
	acceptedDesc = prometheus.NewDesc("ingress_connections_accepted_total", "Connections of clients.", nil, nil)
	openDesc     = prometheus.NewDesc("ingress_connections", "Connections of clients that are open.", nil, nil)
	closedDesc   = prometheus.NewDesc("ingress_connections_closed_for_room_total",
		"Connections without a request that were closed because there were as many as may be.", nil, nil)
	failedDesc  = prometheus.NewDesc("ingress_tls_handshake_failures_total", "Handshakes of TLS that failed.", nil, nil)
	refusedDesc = prometheus.NewDesc("ingress_connections_refused_total",
		"Connections that were closed at once because their client had its share.", nil, nil)
	callsDesc = prometheus.NewDesc("ingress_requests_refused_total",
		"Requests that were not passed on because as many were as may be, of all or of their client.", nil, nil)
)

// Describe implements prometheus.Collector.
func (e *Engine) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requestsDesc, secondsDesc, bytesDesc, acceptedDesc, openDesc, closedDesc,
		failedDesc, refusedDesc, callsDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (e *Engine) Collect(to chan<- prometheus.Metric) {
	e.counters.mu.Lock()
	all := map[route.Source]*counter{{}: &e.counters.unmatched}
	for s, c := range e.counters.rules {
		all[s] = c
	}
	e.counters.mu.Unlock()
	for s, c := range all {
		names := []string{s.Namespace, s.Name, s.Service}
		for class := range c.classes {
			if n := c.classes[class].Load(); n > 0 {
				to <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(n),
					append(names[:3:3], strconv.Itoa(class)+"xx")...)
			}
		}
		buckets, count := map[float64]uint64{}, uint64(0)
		for i := range bucketBounds {
			count += c.buckets[i].Load()
			buckets[bucketBounds[i].Seconds()] = count
		}
		count += c.buckets[len(bucketBounds)].Load()
		to <- prometheus.MustNewConstHistogram(secondsDesc, count, time.Duration(c.sum.Load()).Seconds(), buckets,
			names...)
		to <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(c.bytes.Load()), names...)
	}
	e.mu.Lock()
	open := len(e.conns)
	e.mu.Unlock()
	to <- prometheus.MustNewConstMetric(acceptedDesc, prometheus.CounterValue, float64(e.counters.accepted.Load()))
	to <- prometheus.MustNewConstMetric(openDesc, prometheus.GaugeValue, float64(open))
	to <- prometheus.MustNewConstMetric(closedDesc, prometheus.CounterValue, float64(e.counters.closedForRoom.Load()))
	to <- prometheus.MustNewConstMetric(failedDesc, prometheus.CounterValue, float64(e.counters.handshakes.Load()))
	to <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(e.counters.refusedConns.Load()))
	to <- prometheus.MustNewConstMetric(callsDesc, prometheus.CounterValue, float64(e.counters.refusedCalls.Load()))
}
