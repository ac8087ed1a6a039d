package run

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// slis holds the results of health checks that are served at /metrics/slis, under upstream's names. See
// https://kubernetes.io/docs/reference/instrumentation/slis/.
type slis struct {
	registry *prometheus.Registry
	now      *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

func newSLIs() *slis {
	s := &slis{
		registry: prometheus.NewRegistry(),
		now: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Name: "kubernetes_healthcheck", Help: "Whether a health check succeeded last."},
			[]string{"name", "type"},
		),
		total: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "kubernetes_healthchecks_total", Help: "Results of health checks."},
			[]string{"name", "type", "status"},
		),
	}
	s.registry.MustRegister(s.now, s.total)
	return s
}

// count records the results of the checks of an endpoint, by its name: livez, readyz or healthz.
func (s *slis) count(endpoint string, results []result) {
	for _, r := range results {
		well, status := 1.0, "success"
		if r.err != nil {
			well, status = 0, "error"
		}
		s.now.WithLabelValues(r.name, endpoint).Set(well)
		s.total.WithLabelValues(r.name, endpoint, status).Inc()
	}
}

// serveSLIs serves the results of health checks as metrics. Every scrape runs the checks, so that the series exist from
// the start, even if nothing requests the health endpoints.
func (h *Health) serveSLIs() http.Handler {
	counts := h.sharedSLIs()
	answer := promhttp.HandlerFor(counts.registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counts.count("livez", h.results(false, ""))
		counts.count("readyz", h.results(true, ""))
		answer.ServeHTTP(w, r)
	})
}

// sharedSLIs returns the metrics of the check results.
func (h *Health) sharedSLIs() *slis {
	h.once.Do(func() { h.sliMetrics = newSLIs() })
	return h.sliMetrics
}
