package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/run/measure"
)

// requestMetrics holds the metrics of requests to the API server, under upstream's names.
type requestMetrics struct {
	total   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// newRequestMetrics returns the metrics of a registry and registers them if necessary: all clients of a daemon share
// them.
func newRequestMetrics(registry prometheus.Registerer) (requestMetrics, error) {
	r := requestMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "Requests to the API server, by what it answered; <error> " +
				"where it did not.",
		}, []string{"code", "method", "host"}),
		seconds: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: "Time until the API server begins to answer.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
		}, []string{"verb", "host"}),
	}
	var err error
	if r.total, err = registerOrReuse(registry, r.total); err != nil {
		return r, err
	}
	r.seconds, err = registerOrReuse(registry, r.seconds)
	return r, err
}

// registerOrReuse registers a collector. It returns that collector, or an equal one that was registered before.
func registerOrReuse[C prometheus.Collector](registry prometheus.Registerer, c C) (C, error) {
	err := registry.Register(c)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if existing, ok := before.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	if err != nil {
		return c, fmt.Errorf("register the metrics of requests: %w", err)
	}
	return c, nil
}

// ObserveLeading returns active wrapped so that the leader election metric is 1 for the lease's name while it runs, and
// 0 before and after.
func ObserveLeading(
	registry prometheus.Registerer,
	name string,
	active func(context.Context) error,
) (func(context.Context) error, error) {
	leads, err := registerOrReuse(registry, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "leader_election_master_status", Help: "1 while this process holds a lease, 0 while it waits for it.",
	}, []string{"name"}))
	if err != nil {
		return nil, err
	}
	leads.WithLabelValues(name).Set(0)
	return func(ctx context.Context) error {
		leads.WithLabelValues(name).Set(1)
		defer leads.WithLabelValues(name).Set(0)
		return active(ctx)
	}, nil
}

// RequestCounter returns a function that wraps a transport to count its requests in the same metrics, for clients of
// servers other than the API server. API objects name these servers, so all hosts beyond the first maxHosts are counted
// under one label.
func RequestCounter(registry prometheus.Registerer) (func(to http.RoundTripper) http.RoundTripper, error) {
	r, err := newRequestMetrics(registry)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	hosts := map[string]bool{}
	host := func(name string) string {
		mu.Lock()
		defer mu.Unlock()
		if !hosts[name] && len(hosts) >= maxHosts {
			return otherHosts
		}
		hosts[name] = true
		return name
	}
	return func(to http.RoundTripper) http.RoundTripper { return countingTransport{r, to, host} }, nil
}

const (
	maxHosts   = 256
	otherHosts = "other"
)

// countingTransport counts the requests of a transport.
type countingTransport struct {
	requestMetrics
	transport http.RoundTripper
	host      func(string) string // returns the label of a host; nil means the host itself
}

func (o countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	start, host := time.Now(), r.URL.Host
	if o.host != nil {
		host = o.host(host)
	}
	answer, err := o.transport.RoundTrip(r)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(answer.StatusCode)
	}
	o.total.WithLabelValues(code, r.Method, host).Inc()
	o.seconds.WithLabelValues(r.Method, host).Observe(time.Since(start).Seconds())
	return answer, err
}

// WrappedRoundTripper returns the underlying transport, for callers that unwrap transports.
func (o countingTransport) WrappedRoundTripper() http.RoundTripper { return o.transport }
