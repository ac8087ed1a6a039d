package loop

import (
	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/run/measure"
)

// Counter returns a counter of what a controller does, which is served.
func (c Context) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	c.Count(v)
	return v
}

// Histogram returns a histogram of what a controller does, which is served.
func (c Context) Histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := measure.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	c.Count(v)
	return v
}

// DeletionBuckets are the seconds by which evictions are counted.
var DeletionBuckets = []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}
