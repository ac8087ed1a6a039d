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

// requests holds the metrics of requests to the API server, under upstream's names.
type requests struct {
	total   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// countRequests returns the metrics of a registry and registers them if necessary: all clients of a daemon share them.
func countRequests(registry prometheus.Registerer) (requests, error) {
	r := requests{
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
	if r.total, err = registered(registry, r.total); err != nil {
		return r, err
	}
	r.seconds, err = registered(registry, r.seconds)
	return r, err
}

// registered registers a collector. It returns that collector, or an equal one that was registered before.
func registered[C prometheus.Collector](registry prometheus.Registerer, c C) (C, error) {
	err := registry.Register(c)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if there, ok := before.ExistingCollector.(C); ok {
			return there, nil
		}
	}
	if err != nil {
		return c, fmt.Errorf("register the metrics of requests: %w", err)
	}
	return c, nil
}

// CountLeading returns active wrapped so that the leader election metric is 1 for the lease's name while it runs, and 0
// before and after.
func CountLeading(
	registry prometheus.Registerer,
	name string,
	active func(context.Context) error,
) (func(context.Context) error, error) {
	leads, err := registered(registry, prometheus.NewGaugeVec(prometheus.GaugeOpts{
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

// Counted returns a function that wraps a transport to count its requests in the same metrics, for clients of servers
// other than the API server. API objects name these servers, so all hosts beyond the first mostHosts are counted under
// one label.
func Counted(registry prometheus.Registerer) (func(to http.RoundTripper) http.RoundTripper, error) {
	r, err := countRequests(registry)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	hosts := map[string]bool{}
	host := func(name string) string {
		mu.Lock()
		defer mu.Unlock()
		if !hosts[name] && len(hosts) >= mostHosts {
			return otherHosts
		}
		hosts[name] = true
		return name
	}
	return func(to http.RoundTripper) http.RoundTripper { return observed{r, to, host} }, nil
}

const (
	mostHosts  = 256
	otherHosts = "other"
)

// observed counts the requests of a transport.
type observed struct {
	requests
	to   http.RoundTripper
	host func(string) string // returns the label of a host; nil means the host itself
}

func (o observed) RoundTrip(r *http.Request) (*http.Response, error) {
	began, host := time.Now(), r.URL.Host
	if o.host != nil {
		host = o.host(host)
	}
	answer, err := o.to.RoundTrip(r)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(answer.StatusCode)
	}
	o.total.WithLabelValues(code, r.Method, host).Inc()
	o.seconds.WithLabelValues(r.Method, host).Observe(time.Since(began).Seconds())
	return answer, err
}

// WrappedRoundTripper returns the underlying transport, for callers that unwrap transports.
func (o observed) WrappedRoundTripper() http.RoundTripper { return o.to }
