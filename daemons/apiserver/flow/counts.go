package flow

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are upstream's metrics of priority and fairness. What is in seats and queues now is
// read when somebody asks.
type counts struct {
	rejected *prometheus.CounterVec
	waited   *prometheus.HistogramVec
}

func newCounts(c *Controller) (*counts, error) {
	n := &counts{
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_flowcontrol_rejected_requests_total", Help: "Requests that got no seat.",
		}, []string{"priority_level", "flow_schema", "reason"}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_flowcontrol_request_wait_duration_seconds", Help: "How long requests waited in a queue, of those that had to.",
			Buckets: []float64{.005, .02, .05, .1, .2, .5, 1, 2, 5, 10, 15, 30},
		}, []string{"priority_level", "flow_schema", "execute"}),
	}
	return n, errors.Join(c.Env.Metrics.Register(n.rejected), c.Env.Metrics.Register(n.waited), c.Env.Metrics.Register(now{
		c,
		prometheus.NewDesc("apiserver_flowcontrol_nominal_limit_seats", "Seats of a priority level.", []string{"priority_level"}, nil),
		prometheus.NewDesc("apiserver_flowcontrol_current_executing_seats", "Seats that are taken.", []string{"priority_level"}, nil),
		prometheus.NewDesc("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for a seat.", []string{"priority_level"}, nil),
		prometheus.NewDesc("apiserver_flowcontrol_list_bytes", "Bytes of lists that are being answered.", nil, nil),
	}))
}

type now struct {
	c                                 *Controller
	nominal, executing, queued, bytes *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (n now) Describe(to chan<- *prometheus.Desc) {
	to <- n.nominal
	to <- n.executing
	to <- n.queued
	to <- n.bytes
}

// Collect implements prometheus.Collector.
func (n now) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	for _, l := range n.c.order {
		gauge(n.nominal, float64(l.nominal), l.name)
		gauge(n.executing, float64(l.used), l.name)
		gauge(n.queued, float64(l.waiting), l.name)
	}
	gauge(n.bytes, float64(n.c.bytes))
}
