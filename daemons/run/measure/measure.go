// Package measure creates the histograms that daemons serve at /metrics. Like upstream's since Kubernetes 1.37, each
// histogram has both classic and exponential buckets. Scrapers that request the protobuf format get a native histogram.
// Others get text with the classic buckets only. See
// https://kubernetes.io/docs/reference/instrumentation/native-histograms/.
package measure

import "github.com/prometheus/client_golang/prometheus"

const (
	// bucketFactor is the maximum ratio between the widths of neighbouring exponential buckets.
	bucketFactor = 1.1
	// maxBuckets is the maximum number of exponential buckets per series. Beyond it, buckets are merged.
	maxBuckets = 160
)

// NewHistogram returns a histogram that is not registered yet.
func NewHistogram(o prometheus.HistogramOpts) prometheus.Histogram {
	return prometheus.NewHistogram(withNativeBuckets(o))
}

// NewHistogramVec returns a histogram with labels that is not registered yet.
func NewHistogramVec(o prometheus.HistogramOpts, labels []string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(withNativeBuckets(o), labels)
}

func withNativeBuckets(o prometheus.HistogramOpts) prometheus.HistogramOpts {
	o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber = bucketFactor, maxBuckets
	return o
}
