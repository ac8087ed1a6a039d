package apiserver

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/apiserver/webhook"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/client"
	"clusterctl/daemons/run/measure"
)

// observed holds the server's metrics, under upstream's names. Every label has a closed set of values. Requests for
// resources that are not served, and requests that are not authorized yet, count without a resource.
type observed struct {
	requests, terminations *prometheus.CounterVec
	duration, sli          *prometheus.HistogramVec
	long                   *prometheus.GaugeVec
	series                 sync.Map        // *series by about
	inFlight               [2]atomic.Int64 // requests that read, and that write; neither counts watches and streams
	// Streams over WebSockets, by their outcome.
	translated, tunnelled *prometheus.CounterVec
	certificates          prometheus.Histogram // remaining lifetime of client certificates
	webhooks              *webhook.Counts
	admissions            admissions
	watches               watches
	reads                 reads
	handshakes            prometheus.Counter // failed TLS handshakes
	deprecated            *prometheus.GaugeVec
	sizes                 *prometheus.HistogramVec // sizes of responses to reads
	unavailable           *prometheus.CounterVec   // how often aggregated servers were found unavailable
	store                 atomic.Pointer[error]
	storeHeard            atomic.Pointer[time.Time] // time of the last recorded success of the store
}

// about holds the labels of a request's metrics.
type about struct{ verb, group, version, resource, subresource, scope, dryRun string }

var (
	aboutLabels = []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}
	barely      = []string{
		"verb",
		"group",
		"version",
		"resource",
		"subresource",
		"scope",
		"component",
	} // all labels but dry_run

	durations    = append([]float64{.005, .025}, sliDurations...)
	sliDurations = []float64{.05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	// lifetimes are buckets, in seconds, of the remaining lifetime of certificates: half an hour to a year.
	lifetimes = []float64{
		0,
		1800,
		3600,
		7200,
		21600,
		43200,
		86400,
		172800,
		345600,
		604800,
		2592000,
		7776000,
		15552000,
		31104000,
	}
)

func (a about) labels() []string {
	return []string{a.verb, a.dryRun, a.group, a.version, a.resource, a.subresource, a.scope, counter}
}

func (a about) barely() []string {
	return []string{a.verb, a.group, a.version, a.resource, a.subresource, a.scope, counter}
}

// counter is the value of the component label.
const counter = "apiserver"

func newObserved(s *Server) (*observed, error) {
	o := &observed{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "Requests by verb, resource and answer.",
		}, append(aboutLabels[:len(aboutLabels):len(aboutLabels)], "code")),
		terminations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_terminations_total", Help: "Requests that were refused to protect the server.",
		}, append(barely[:len(barely):len(barely)], "code")),
		duration: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Help: "How long requests took, besides watches and " +
				"streams.", Buckets: durations,
		}, aboutLabels),
		sli: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_sli_duration_seconds", Help: "How long requests took, besides watches and " +
				"streams, without waiting for their turn or for webhooks. Dry runs are not " +
				"counted.", Buckets: sliDurations,
		}, barely),
		long: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches and streams that are open.",
		}, barely),
		translated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_stream_translator_requests_total", Help: "Requests to exec and attach over a " +
				"WebSocket's channels.",
		}, []string{"code"}),
		tunnelled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_stream_tunnel_requests_total", Help: "Requests to forward ports over SPDY within a " +
				"WebSocket.",
		}, []string{"code"}),
		sizes: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_response_sizes", Help: "Bytes of answers to " +
				"reads.", Buckets: prometheus.ExponentialBuckets(1000, 10, 7),
		}, barely),
		deprecated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_requested_deprecated_apis", Help: "1 for deprecated versions that were asked for.",
		}, []string{"group", "version", "resource", "subresource", "removed_release"}),
		handshakes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_tls_handshake_errors_total", Help: "Connections that ended before their TLS was agreed " +
				"upon.",
		}),
		certificates: measure.NewHistogram(prometheus.HistogramOpts{
			Name: "apiserver_client_certificate_expiration_seconds", Help: "How long the certificates of requests " +
				"are still valid.", Buckets: lifetimes,
		}),
	}
	o.admissions.init()
	o.unavailable = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "aggregator_unavailable_apiservice_total", Help: "How often the server of an APIService was found " +
			"unavailable.",
	}, []string{"name", "reason"})
	var err error
	if s.reach.Counted, err = client.Counted(s.o.Env.Metrics); err != nil {
		return nil, err
	}
	if o.webhooks, err = webhook.NewCounts(s.o.Env.Metrics); err != nil {
		return nil, err
	}
	return o, errors.Join(
		append(
			registerAll(
				s.o.Env.Metrics,
				o.requests,
				o.terminations,
				o.duration,
				o.sli,
				o.long,
				o.translated,
				o.tunnelled,
				o.certificates,
				o.admissions.steps,
				o.admissions.plugins,
				o.unavailable,
				o.sizes,
				o.deprecated,
				o.handshakes,
				&o.watches,
				&o.reads,
				cacheCounts{s},
				s.store.(*countedStore),
			),
			s.o.Env.Metrics.Register(
				unavailableNow{
					s,
					prometheus.NewDesc(
						"aggregator_unavailable_apiservice",
						"1 while the server of an APIService is unavailable.",
						[]string{"name"},
						nil,
					),
				},
			),
			s.o.Env.Metrics.Register(
				inFlight{
					prometheus.NewDesc(
						"apiserver_current_inflight_requests",
						"Requests being worked on.",
						[]string{"request_kind"},
						nil,
					),
					o,
				},
			),
			s.o.Env.Metrics.Register(newObjectCounts(s)),
			s.o.Env.Metrics.Register(newStorageSize(s.o.Store)),
		)...)
}

func registerAll(metrics prometheus.Registerer, all ...prometheus.Collector) (errs []error) {
	for _, c := range all {
		errs = append(errs, metrics.Register(c))
	}
	return errs
}

// series holds the metrics of requests with the same labels, looked up once.
type series struct {
	o             *observed
	about         about
	duration, sli prometheus.Observer // nil for watches and streams
	size          prometheus.Observer // nil for all requests but reads

	mu    sync.Mutex
	codes map[int]prometheus.Counter
}

// of returns the series for a set of labels.
func (o *observed) of(a about, long bool) *series {
	if s, ok := o.series.Load(a); ok {
		return s.(*series)
	}
	s := &series{o: o, about: a, codes: map[int]prometheus.Counter{}}
	if !long {
		s.duration = o.duration.WithLabelValues(a.labels()...)
		if a.dryRun == "" {
			s.sli = o.sli.WithLabelValues(a.barely()...)
		}
		if a.resource != "" && (a.verb == "GET" || a.verb == "LIST") {
			s.size = o.sizes.WithLabelValues(a.barely()...)
		}
	}
	made, _ := o.series.LoadOrStore(a, s)
	return made.(*series)
}

func (s *series) count(code int) {
	s.mu.Lock()
	c := s.codes[code]
	if c == nil {
		c = s.o.requests.WithLabelValues(append(s.about.labels(), strconv.Itoa(code))...)
		s.codes[code] = c
	}
	s.mu.Unlock()
	c.Inc()
}

// about returns the labels of a request's metrics.
func (q *request) about() about {
	a := about{verb: q.counted()}
	switch {
	case !q.Resource:
		a.subresource = ownPath(q.Path)
		return a
	case !q.known || !q.passed:
		return a
	}
	a.group, a.version, a.resource = q.Group, q.GroupVersionResource.Version, q.GroupVersionResource.Resource
	if served(q.served, q.Subresource) {
		a.subresource = q.Subresource
	}
	switch {
	case q.Name != "" || q.Verb == "create":
		a.scope = "resource"
	case q.Namespace != "":
		a.scope = "namespace"
	default:
		a.scope = "cluster"
	}
	if values := q.query["dryRun"]; len(values) > 0 && values[0] == "All" {
		a.dryRun = "All"
	} else if len(values) > 0 {
		a.dryRun = "invalid"
	}
	return a
}

// counted returns the verb label of a request, which is upstream's.
func (q *request) counted() string {
	if q.Resource {
		switch q.Subresource {
		case "log", "exec", "attach", "portforward", "proxy":
			return "CONNECT"
		}
		switch q.Verb {
		case "list", "watch", "deletecollection":
			return strings.ToUpper(q.Verb)
		case "patch":
			if kind, _, _ := strings.Cut(q.http.Header.Get("Content-Type"), ";"); strings.HasPrefix(
				kind,
				"application/apply-patch+",
			) {
				return "APPLY"
			}
		}
	}
	switch q.http.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return q.http.Method
	case http.MethodHead:
		return http.MethodGet
	}
	return "other"
}

// ownPath returns the label of a non-resource path; empty for paths without a label of their own.
func ownPath(path string) string {
	for _, p := range []string{"/livez", "/readyz", "/healthz", "/metrics", "/version", "/debug/pprof", "/statusz",
		"/flagz"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return p
		}
	}
	return ""
}

// served reports whether a kind has a subresource.
func served(kind wire.Served, subresource string) bool {
	switch subresource {
	case "":
		return true
	case "status":
		return kind.Status != nil
	case "scale":
		return kind.Scale != nil
	}
	for _, name := range kind.Subresources {
		if name == subresource {
			return true
		}
	}
	return false
}

// writes returns the index of a request in inFlight.
func (q *request) writes() int {
	if m := q.http.Method; m == http.MethodGet || m == http.MethodHead {
		return 0
	}
	return 1
}

// begin counts a request that has arrived.
func (o *observed) begin(q *request) {
	if !q.long() {
		o.inFlight[q.writes()].Add(1)
	}
}

// pass records that a request is authorized. From now on its metrics may name its resource.
func (o *observed) pass(q *request) {
	q.passed = true
	if q.long() && q.known {
		a := q.about()
		q.open = o.long.WithLabelValues(a.barely()...)
		q.open.Inc()
	}
}

// done counts a finished request.
func (o *observed) done(q *request, rec *recorder, start time.Time) {
	a, long := q.about(), q.long()
	s := o.of(a, long)
	s.count(rec.code)
	if q.open != nil {
		q.open.Dec()
	}
	if tls := q.http.TLS; tls != nil && len(tls.PeerCertificates) > 0 {
		o.certificates.Observe(time.Until(tls.PeerCertificates[0].NotAfter).Seconds())
	}
	if rec.code == http.StatusTooManyRequests && !q.passed {
		o.terminations.WithLabelValues(append(a.barely(), strconv.Itoa(rec.code))...).Inc()
	}
	if long {
		return
	}
	o.inFlight[q.writes()].Add(-1)
	if s.duration == nil {
		return
	}
	took := time.Since(start)
	s.duration.Observe(took.Seconds())
	if s.sli != nil {
		s.sli.Observe((took - q.waited - time.Duration(rec.outside.Load())).Seconds())
	}
	if s.size != nil {
		s.size.Observe(float64(rec.size))
	}
	if q.schema != nil {
		if !q.turnAt.IsZero() {
			took -= q.turnAt.Sub(start)
		}
		q.schema.Executed(took, false)
	}
}

// deprecatedVersion records an authorized request for a deprecated version. The label for the removing release is
// empty, because no served version has one.
func (o *observed) deprecatedVersion(q *request) {
	a := q.about()
	o.deprecated.WithLabelValues(a.group, a.version, a.resource, a.subresource, "").Set(1)
}

// inFlight collects the number of requests in flight.
type inFlight struct {
	desc *prometheus.Desc
	o    *observed
}

// Describe implements prometheus.Collector.
func (f inFlight) Describe(to chan<- *prometheus.Desc) { to <- f.desc }

// Collect implements prometheus.Collector.
func (f inFlight) Collect(to chan<- prometheus.Metric) {
	for i, kind := range []string{"readOnly", "mutating"} {
		to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(f.o.inFlight[i].Load()), kind)
	}
}
