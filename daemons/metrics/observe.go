package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/run/measure"
)

// selfMetrics holds the daemon's metrics about itself, under upstream's names.
type selfMetrics struct {
	seconds  prometheus.Histogram
	requests *prometheus.CounterVec
}

func newSelfMetrics(r prometheus.Registerer) *selfMetrics {
	o := &selfMetrics{
		seconds: measure.NewHistogram(prometheus.HistogramOpts{
			Name: "metrics_server_kubelet_request_duration_seconds", Help: "How long nodes take to say what they use.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "metrics_server_kubelet_request_total", Help: "Questions to nodes about what they use, by whether " +
				"they were answered.",
		}, []string{"success"}),
	}
	r.MustRegister(o.seconds, o.requests)
	return o
}

func (o *selfMetrics) observeRequest(took time.Duration, err error) {
	success := "true"
	if err != nil {
		success = "false"
	}
	o.seconds.Observe(took.Seconds())
	o.requests.WithLabelValues(success).Inc()
}
