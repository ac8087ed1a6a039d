package read

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/request"
)

// watchMetrics holds the metrics of watches, for each version of a kind that was watched.
type watchMetrics struct{ all sync.Map } // *watchCounts by schema.GroupVersionResource

// minEventShift is the first bucket of event sizes, as a power of two in bytes. eventBuckets is the number of buckets,
// each twice as large as the one before.
const (
	minEventShift = 10 // 1 KiB
	eventBuckets  = 8
)

// watchCounts holds the metrics of one version of a kind. Events that many watches share are measured once, and the
// result is added for each of these watches.
type watchCounts struct {
	gvr      schema.GroupVersionResource
	kind     string
	watchers atomic.Int64
	sizes    [eventBuckets + 1]atomic.Uint64
	bytes    atomic.Uint64
}

// eventSizes is a histogram of the sizes of some events.
type eventSizes struct {
	sizes [eventBuckets + 1]uint32
	bytes uint64
}

// add counts one event. An event without bytes was not sent, and is not counted.
func (s *eventSizes) add(bytes int) {
	if bytes > 0 {
		s.sizes[eventBucket(bytes)]++
		s.bytes += uint64(bytes)
	}
}

func eventBucket(bytes int) int {
	return min(max(bits.Len(uint(bytes-1))-minEventShift, 0), eventBuckets)
}

// addSent adds events that were sent to one watch.
func (c *watchCounts) addSent(s *eventSizes) {
	for i, n := range s.sizes {
		if n > 0 {
			c.sizes[i].Add(uint64(n))
		}
	}
	c.bytes.Add(s.bytes)
}

// addOne adds one event.
func (c *watchCounts) addOne(bytes int) {
	if bytes > 0 {
		c.sizes[eventBucket(bytes)].Add(1)
		c.bytes.Add(uint64(bytes))
	}
}

// countsOf returns the metrics of the kind that a request watches.
func (w *watchMetrics) countsOf(q *request.Request) *watchCounts {
	if c, ok := w.all.Load(q.GroupVersionResource); ok {
		return c.(*watchCounts)
	}
	c, _ := w.all.LoadOrStore(q.GroupVersionResource,
		&watchCounts{gvr: q.GroupVersionResource, kind: q.Served.GVK.Kind})
	return c.(*watchCounts)
}

var (
	eventLabels = []string{"group", "version", "resource"}

	watchEventsDesc = prometheus.NewDesc("apiserver_watch_events_total", "Events that watches were sent.", eventLabels,
		nil)
	watchSizesDesc = prometheus.NewDesc("apiserver_watch_events_sizes", "Bytes of events that watches were sent.",
		eventLabels, nil)
	watchersDesc = prometheus.NewDesc("apiserver_registered_watchers", "Watches that are open.",
		[]string{"group", "version", "kind"}, nil)
)

// Describe implements prometheus.Collector.
func (w *watchMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- watchEventsDesc
	to <- watchSizesDesc
	to <- watchersDesc
}

// Collect implements prometheus.Collector.
func (w *watchMetrics) Collect(to chan<- prometheus.Metric) {
	w.all.Range(func(_, value any) bool {
		c := value.(*watchCounts)
		count, upTo := uint64(0), make(map[float64]uint64, eventBuckets)
		for i := range c.sizes {
			count += c.sizes[i].Load()
			if i < eventBuckets {
				upTo[float64(int(1)<<(minEventShift+i))] = count
			}
		}
		labels := []string{c.gvr.Group, c.gvr.Version, c.gvr.Resource}
		to <- prometheus.MustNewConstMetric(watchEventsDesc, prometheus.CounterValue, float64(count), labels...)
		to <- prometheus.MustNewConstHistogram(watchSizesDesc, count, float64(c.bytes.Load()), upTo, labels...)
		to <- prometheus.MustNewConstMetric(watchersDesc, prometheus.GaugeValue, float64(c.watchers.Load()),
			c.gvr.Group, c.gvr.Version, c.kind)
		return true
	})
}
