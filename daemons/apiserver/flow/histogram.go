package flow

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bucketBounds are the upper bounds of the histogram's buckets, in seconds. They are upstream's. Requests that did not
// wait have a bucket of their own.
var bucketBounds = [...]float64{0, .005, .02, .05, .1, .2, .5, 1, 2, 5, 10, 15, 30}

// histogram counts durations. Every request uses one or two, and adding to it is cheaper than to the Prometheus
// library's.
type histogram struct {
	buckets [len(bucketBounds) + 1]atomic.Uint64
	sum     atomic.Int64 // in nanoseconds
}

func (h *histogram) observe(d time.Duration) {
	seconds, i := d.Seconds(), 0
	for i < len(bucketBounds) && seconds > bucketBounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(int64(d))
}

// metric returns the histogram as a metric; nil if it is empty.
func (h *histogram) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	count, upTo := uint64(0), make(map[float64]uint64, len(bucketBounds))
	for i := range h.buckets {
		count += h.buckets[i].Load()
		if i < len(bucketBounds) {
			upTo[bucketBounds[i]] = count
		}
	}
	if count == 0 {
		return nil
	}
	return prometheus.MustNewConstHistogram(desc, count, time.Duration(h.sum.Load()).Seconds(), upTo, labels...)
}
