package read

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/run/measure"
)

// readMetrics holds the metrics of lists and of watches' initial events, for each resource that was requested.
type readMetrics struct{ all sync.Map } // *readCounts by schema.GroupResource

// readCounts holds the metrics of one resource.
type readCounts struct {
	gr         schema.GroupResource
	lists      []listCounts         // by index: lists without one first, then the kind's indexed fields
	consistent [2]atomic.Int64      // lists of the current state: failed, and successful
	waited     prometheus.Histogram // seconds until the cache was recent enough
	initial    atomic.Int64         // initial events of watches
	stuck      atomic.Int64         // watches that ended because their client took no data
}

// listCounts holds the metrics of lists by one index.
type listCounts struct {
	index                               string
	lists, fetched, evaluated, returned atomic.Int64
}

// countsOf returns the metrics of the resource that a request reads.
func (r *readMetrics) countsOf(q *request.Request) *readCounts {
	gr := q.Served.GR()
	if c, ok := r.all.Load(gr); ok {
		return c.(*readCounts)
	}
	c := &readCounts{
		gr:    gr,
		lists: make([]listCounts, 1+len(q.Served.IndexedFields)),
		waited: measure.NewHistogram(prometheus.HistogramOpts{
			Name: "apiserver_watch_cache_read_wait_seconds", Help: "How long reads waited for the " +
				"cache.", ConstLabels: prometheus.Labels{"group": gr.Group, "resource": gr.Resource},
			Buckets: []float64{.005, .025, .05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3},
		}),
	}
	for i, field := range q.Served.IndexedFields {
		c.lists[i+1].index = "f:" + field
	}
	made, _ := r.all.LoadOrStore(gr, c)
	return made.(*readCounts)
}

// recordWait records how long a list waited for the cache, and whether that succeeded.
func (c *readCounts) recordWait(start time.Time, consistent bool, err error) {
	c.waited.Observe(time.Since(start).Seconds())
	switch {
	case !consistent:
	case err == nil:
		c.consistent[1].Add(1)
	default:
		c.consistent[0].Add(1)
	}
}

// recordList records a list: how many objects were examined, and how many are in the response.
func (c *readCounts) recordList(sel *Selection, returned int) {
	if sel.fieldIndex >= len(c.lists) {
		return
	}
	l := &c.lists[sel.fieldIndex]
	l.lists.Add(1)
	l.fetched.Add(int64(sel.examined))
	l.returned.Add(int64(returned))
	if !sel.hasNoSelectors() {
		l.evaluated.Add(int64(sel.examined))
	}
}

func newResourceDesc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("apiserver_"+name, help, append([]string{"group", "resource"}, more...), nil)
}

var (
	consistentDesc = newResourceDesc("watch_cache_consistent_read_total",
		"Lists of what there was when they were asked for.", "success", "fallback")
	initialDesc = newResourceDesc("init_events_total", "Events that watches began with.")
	stuckDesc   = newResourceDesc("terminated_watchers_total",
		"Watches that were ended since their clients took nothing.")

	cacheListsDesc   = newResourceDesc("cache_list_total", "Lists.", "index")
	cacheFetchedDesc = newResourceDesc("cache_list_fetched_objects_total", "Objects that were looked at for lists.",
		"index")
	cacheReturnedDesc = newResourceDesc("cache_list_returned_objects_total", "Objects that lists had.")

	storageListsDesc   = newResourceDesc("storage_list_total", "Lists.", "storage", "index")
	storageFetchedDesc = newResourceDesc("storage_list_fetched_objects_total", "Objects that were looked at for lists.",
		"storage", "index")
	storageEvaluatedDesc = newResourceDesc("storage_list_evaluated_objects_total",
		"Objects that were compared with selectors for lists.", "storage")
	storageReturnedDesc = newResourceDesc("storage_list_returned_objects_total", "Objects that lists had.", "storage")
)

// fromCache is the label value for the storage of lists, which is always the cache.
const fromCache = "watchcache"

// Describe implements prometheus.Collector. It describes nothing, because the label values are not known in advance.
func (r *readMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r *readMetrics) Collect(to chan<- prometheus.Metric) {
	r.all.Range(func(_, value any) bool {
		c := value.(*readCounts)
		group, resource := c.gr.Group, c.gr.Resource
		counter := func(d *prometheus.Desc, n int64, more ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n),
				append([]string{group, resource}, more...)...)
		}
		to <- c.waited
		counter(consistentDesc, c.consistent[0].Load(), "false", "false")
		counter(consistentDesc, c.consistent[1].Load(), "true", "false")
		counter(initialDesc, c.initial.Load())
		counter(stuckDesc, c.stuck.Load())
		evaluated, returned := int64(0), int64(0)
		for i := range c.lists {
			l := &c.lists[i]
			counter(cacheListsDesc, l.lists.Load(), l.index)
			counter(cacheFetchedDesc, l.fetched.Load(), l.index)
			counter(storageListsDesc, l.lists.Load(), fromCache, l.index)
			counter(storageFetchedDesc, l.fetched.Load(), fromCache, l.index)
			evaluated, returned = evaluated+l.evaluated.Load(), returned+l.returned.Load()
		}
		counter(cacheReturnedDesc, returned)
		counter(storageEvaluatedDesc, evaluated, fromCache)
		counter(storageReturnedDesc, returned, fromCache)
		return true
	})
}

// cacheCounts collects the metrics that the cache counts itself.
type cacheCounts struct{ cache *cache.Cache }

var (
	receivedDesc   = newResourceDesc("watch_cache_events_received_total", "Changes that the store has reported.")
	dispatchedDesc = newResourceDesc("watch_cache_events_dispatched_total", "Changes that watches could hear of.")
	loadedDesc     = newResourceDesc("watch_cache_initializations_total", "How often a kind was loaded from the store.")
	versionDesc    = newResourceDesc("watch_cache_resource_version",
		"The version of a kind's last change, of which the last 15 digits.")
)

// maxReportedVersion limits resource versions to numbers that a float represents exactly, as upstream does.
const maxReportedVersion = 1_000_000_000_000_000

// Describe implements prometheus.Collector.
func (cacheCounts) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{receivedDesc, dispatchedDesc, loadedDesc, versionDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c cacheCounts) Collect(to chan<- prometheus.Metric) {
	for _, r := range c.cache.Resources() {
		group, resource := r.Kind.GVK.Group, r.Kind.Resource
		n := r.Counts()
		for d, count := range map[*prometheus.Desc]int64{receivedDesc: n.Received, dispatchedDesc: n.Dispatched,
			loadedDesc: n.Loaded} {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(count), group, resource)
		}
		to <- prometheus.MustNewConstMetric(versionDesc, prometheus.GaugeValue,
			float64(r.Revision()%maxReportedVersion),
			group, resource)
	}
}
