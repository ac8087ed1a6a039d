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

	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/run/measure"
)

// serverMetrics holds the server's metrics, under upstream's names. Every label has a closed set of values. Requests
// for resources that are not served, and requests that are not authorized yet, count without a resource.
type serverMetrics struct {
	requests, terminations *prometheus.CounterVec
	duration, sli          *prometheus.HistogramVec
	longRunning            *prometheus.GaugeVec
	series                 sync.Map // *series by requestLabels
	// requests that read, and that write; neither counts watches and streams
	inFlight     [2]atomic.Int64
	certificates prometheus.Histogram // remaining lifetime of client certificates
	handshakes   prometheus.Counter   // failed TLS handshakes
	deprecated   *prometheus.GaugeVec
	sizes        *prometheus.HistogramVec // sizes of responses to reads
}

// requestLabels holds the labels of a request's metrics.
type requestLabels struct{ verb, group, version, resource, subresource, scope, dryRun string }

var (
	requestLabelNames = []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope",
		"component"}
	labelNamesWithoutDryRun = []string{
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
	// certificateLifetimes are buckets, in seconds, of the remaining lifetime of certificates: half an hour to a year.
	certificateLifetimes = []float64{
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

func (a requestLabels) values() []string {
	return []string{a.verb, a.dryRun, a.group, a.version, a.resource, a.subresource, a.scope, componentName}
}

func (a requestLabels) valuesWithoutDryRun() []string {
	return []string{a.verb, a.group, a.version, a.resource, a.subresource, a.scope, componentName}
}

// componentName is the value of the component label.
const componentName = "apiserver"

// newServerMetrics returns the metrics of requests. They are not registered yet.
func newServerMetrics() *serverMetrics {
	o := &serverMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "Requests by verb, resource and answer.",
		}, append(requestLabelNames[:len(requestLabelNames):len(requestLabelNames)], "code")),
		terminations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_terminations_total", Help: "Requests that were refused to protect the server.",
		}, append(labelNamesWithoutDryRun[:len(labelNamesWithoutDryRun):len(labelNamesWithoutDryRun)], "code")),
		duration: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Help: "How long requests took, besides watches and " +
				"streams.", Buckets: durations,
		}, requestLabelNames),
		sli: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_sli_duration_seconds", Help: "How long requests took, besides watches and " +
				"streams, without waiting for their turn or for webhooks. Dry runs are not " +
				"counted.", Buckets: sliDurations,
		}, labelNamesWithoutDryRun),
		longRunning: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches and streams that are open.",
		}, labelNamesWithoutDryRun),
		sizes: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_response_sizes", Help: "Bytes of answers to " +
				"reads.", Buckets: prometheus.ExponentialBuckets(1000, 10, 7),
		}, labelNamesWithoutDryRun),
		deprecated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_requested_deprecated_apis", Help: "1 for deprecated versions that were asked for.",
		}, []string{"group", "version", "resource", "subresource", "removed_release"}),
		handshakes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_tls_handshake_errors_total", Help: "Connections that ended before their TLS was agreed " +
				"upon.",
		}),
		certificates: measure.NewHistogram(prometheus.HistogramOpts{
			Name: "apiserver_client_certificate_expiration_seconds", Help: "How long the certificates of requests " +
				"are still valid.", Buckets: certificateLifetimes,
		}),
	}
	return o
}

// newObserved returns the server's metrics. It registers them, and those of the store and of the server's parts.
func newObserved(
	metrics prometheus.Registerer,
	storage *Storage,
	parts []prometheus.Collector,
) (*serverMetrics, error) {
	o := newServerMetrics()
	all := []prometheus.Collector{
		o.requests,
		o.terminations,
		o.duration,
		o.sli,
		o.longRunning,
		o.certificates,
		o.sizes,
		o.deprecated,
		o.handshakes,
		storage.counted,
		inFlightCollector{prometheus.NewDesc("apiserver_current_inflight_requests", "Requests being worked on.",
			[]string{"request_kind"}, nil), o},
		newObjectCounts(storage.cache),
		newStorageSize(storage.raw),
	}
	return o, errors.Join(registerAll(metrics, append(all, parts...)...)...)
}

func registerAll(metrics prometheus.Registerer, all ...prometheus.Collector) (errs []error) {
	for _, c := range all {
		errs = append(errs, metrics.Register(c))
	}
	return errs
}

// series holds the metrics of requests with the same labels, looked up once.
type series struct {
	metrics       *serverMetrics
	labels        requestLabels
	duration, sli prometheus.Observer // nil for watches and streams
	size          prometheus.Observer // nil for all requests but reads

	mu    sync.Mutex
	codes map[int]prometheus.Counter
}

// seriesOf returns the series for a set of labels.
func (o *serverMetrics) seriesOf(a requestLabels, long bool) *series {
	if s, ok := o.series.Load(a); ok {
		return s.(*series)
	}
	s := &series{metrics: o, labels: a, codes: map[int]prometheus.Counter{}}
	if !long {
		s.duration = o.duration.WithLabelValues(a.values()...)
		if a.dryRun == "" {
			s.sli = o.sli.WithLabelValues(a.valuesWithoutDryRun()...)
		}
		if a.resource != "" && (a.verb == "GET" || a.verb == "LIST") {
			s.size = o.sizes.WithLabelValues(a.valuesWithoutDryRun()...)
		}
	}
	made, _ := o.series.LoadOrStore(a, s)
	return made.(*series)
}

func (s *series) count(code int) {
	s.mu.Lock()
	c := s.codes[code]
	if c == nil {
		c = s.metrics.requests.WithLabelValues(append(s.labels.values(), strconv.Itoa(code))...)
		s.codes[code] = c
	}
	s.mu.Unlock()
	c.Inc()
}

// metricLabels returns the labels of a request's metrics.
func metricLabels(q *request.Request) requestLabels {
	a := requestLabels{verb: verbLabel(q)}
	switch {
	case !q.Resource:
		a.subresource = pathLabel(q.Path)
		return a
	case !q.IsServed || !q.Answer.IsAuthorized:
		return a
	}
	a.group, a.version, a.resource = q.Group, q.GroupVersionResource.Version, q.GroupVersionResource.Resource
	if hasSubresource(q.Served, q.Subresource) {
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
	if values := q.Query["dryRun"]; len(values) > 0 && values[0] == "All" {
		a.dryRun = "All"
	} else if len(values) > 0 {
		a.dryRun = "invalid"
	}
	return a
}

// verbLabel returns the verb label of a request, which is upstream's.
func verbLabel(q *request.Request) string {
	if q.Resource {
		switch q.Subresource {
		case "log", "exec", "attach", "portforward", "proxy":
			return "CONNECT"
		}
		switch q.Verb {
		case "list", "watch", "deletecollection":
			return strings.ToUpper(q.Verb)
		case "patch":
			if kind, _, _ := strings.Cut(q.HTTP.Header.Get("Content-Type"), ";"); strings.HasPrefix(kind,
				"application/apply-patch+") {
				return "APPLY"
			}
		}
	}
	switch q.HTTP.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return q.HTTP.Method
	case http.MethodHead:
		return http.MethodGet
	}
	return "other"
}

// pathLabel returns the label of a non-resource path; empty for paths without a label of their own.
func pathLabel(path string) string {
	for _, p := range []string{"/livez", "/readyz", "/healthz", "/metrics", "/version", "/debug/pprof", "/statusz",
		"/flagz"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return p
		}
	}
	return ""
}

// hasSubresource reports whether a kind has a subresource.
func hasSubresource(kind wire.Served, subresource string) bool {
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

// inFlightIndex returns the index of a request in inFlightCollector.
func inFlightIndex(q *request.Request) int {
	if m := q.HTTP.Method; m == http.MethodGet || m == http.MethodHead {
		return 0
	}
	return 1
}

// recordArrival counts a request that has arrived.
func (o *serverMetrics) recordArrival(q *request.Request) {
	if !q.IsLongRunning() {
		q.Answer.IsInFlight = true
		o.inFlight[inFlightIndex(q)].Add(1)
	}
}

// endInFlight stops counting a request as in flight, because it has ended or become a stream.
func (o *serverMetrics) endInFlight(q *request.Request) {
	if q.Answer.IsInFlight {
		q.Answer.IsInFlight = false
		o.inFlight[inFlightIndex(q)].Add(-1)
	}
}

// recordAuthorized records that a request is authorized. From now on its metrics may name its resource.
func (o *serverMetrics) recordAuthorized(q *request.Request) {
	q.Answer.IsAuthorized = true
	if q.IsLongRunning() && q.IsServed {
		a := metricLabels(q)
		q.Answer.LiveGauge = o.longRunning.WithLabelValues(a.valuesWithoutDryRun()...)
		q.Answer.LiveGauge.Inc()
	}
}

// recordDone counts a finished request.
func (o *serverMetrics) recordDone(q *request.Request, start time.Time) {
	a, long := metricLabels(q), q.IsLongRunning()
	s := o.seriesOf(a, long)
	s.count(q.Answer.Code())
	if q.Answer.LiveGauge != nil {
		q.Answer.LiveGauge.Dec()
	}
	if tls := q.HTTP.TLS; tls != nil && len(tls.PeerCertificates) > 0 {
		o.certificates.Observe(time.Until(tls.PeerCertificates[0].NotAfter).Seconds())
	}
	if q.Answer.Code() == http.StatusTooManyRequests && !q.Answer.IsAuthorized {
		o.terminations.WithLabelValues(append(a.valuesWithoutDryRun(), strconv.Itoa(q.Answer.Code()))...).Inc()
	}
	o.endInFlight(q)
	if long || s.duration == nil {
		return
	}
	took := time.Since(start)
	s.duration.Observe(took.Seconds())
	if s.sli != nil {
		s.sli.Observe((took - q.Answer.Wait - time.Duration(q.Answer.WebhookTime.Load())).Seconds())
	}
	if s.size != nil {
		s.size.Observe(float64(q.Answer.Size()))
	}
	if q.Answer.Schema != nil {
		if !q.Answer.GrantedAt.IsZero() {
			took -= q.Answer.GrantedAt.Sub(start)
		}
		q.Answer.Schema.RecordExecution(took, false)
	}
}

// recordDeprecated records an authorized request for a deprecated version. The label for the removing release is
// empty, because no served version has one.
func (o *serverMetrics) recordDeprecated(q *request.Request) {
	a := metricLabels(q)
	o.deprecated.WithLabelValues(a.group, a.version, a.resource, a.subresource, "").Set(1)
}

// inFlightCollector collects the number of requests in flight.
type inFlightCollector struct {
	desc    *prometheus.Desc
	metrics *serverMetrics
}

// Describe implements prometheus.Collector.
func (f inFlightCollector) Describe(to chan<- *prometheus.Desc) { to <- f.desc }

// Collect implements prometheus.Collector.
func (f inFlightCollector) Collect(to chan<- prometheus.Metric) {
	for i, kind := range []string{"readOnly", "mutating"} {
		to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(f.metrics.inFlight[i].Load()), kind)
	}
}
