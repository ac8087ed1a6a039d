package loop

import (
	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/run/measure"
)

// Counter registers and returns a counter for a controller.
func (c Context) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	c.RegisterMetrics(v)
	return v
}

// Histogram registers and returns a histogram for a controller.
func (c Context) Histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := measure.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	c.RegisterMetrics(v)
	return v
}

// DeletionBuckets are the histogram buckets, in seconds, of the time until a pod is evicted.
var DeletionBuckets = []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}
