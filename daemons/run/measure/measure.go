// Package measure creates the histograms that daemons serve at /metrics. Like upstream's since Kubernetes 1.37, each
// histogram has both classic and exponential buckets. Scrapers that request the protobuf format get a native histogram.
// Others get text with the classic buckets only. See
// https://kubernetes.io/docs/reference/instrumentation/native-histograms/.
package measure

import "github.com/prometheus/client_golang/prometheus"

const (
	// factor is the maximum ratio between the widths of neighbouring exponential buckets.
	factor = 1.1
	// mostBuckets is the maximum number of exponential buckets per series. Beyond it, buckets are merged.
	mostBuckets = 160
)

// NewHistogram returns a histogram that is not registered yet.
func NewHistogram(o prometheus.HistogramOpts) prometheus.Histogram {
	return prometheus.NewHistogram(native(o))
}

// NewHistogramVec returns a histogram with labels that is not registered yet.
func NewHistogramVec(o prometheus.HistogramOpts, labels []string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(native(o), labels)
}

func native(o prometheus.HistogramOpts) prometheus.HistogramOpts {
	o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber = factor, mostBuckets
	return o
}
