package apiserver

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/run/measure"
	"clusterctl/daemons/store"
)

// countedStore counts and times calls of the store, under upstream's operation names. Calls that concern no single
// resource, such as reading the current revision, have empty resource labels.
type countedStore struct {
	store.Store
	resource func(key string) schema.GroupResource

	duration         *prometheus.HistogramVec
	requests, errors *prometheus.CounterVec
	series           sync.Map // *storeSeries by storeCall
}

type storeCall struct {
	operation string
	resource  schema.GroupResource
}

type storeSeries struct {
	duration         prometheus.Observer
	requests, errors prometheus.Counter
}

func newCountedStore(s store.Store) *countedStore {
	labels := []string{"operation", "group", "resource"}
	return &countedStore{
		Store: s,
		duration: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "etcd_request_duration_seconds", Help: "How long the store took to answer.", Buckets: durations,
		}, labels),
		requests: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "etcd_requests_total", Help: "What the store was asked."},
			labels,
		),
		errors: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "etcd_request_errors_total",
				Help: "What the store was asked and did not answer.",
			},
			labels,
		),
	}
}

func (c *countedStore) count(operation string, resource schema.GroupResource, start time.Time, err error) {
	call := storeCall{operation, resource}
	found, ok := c.series.Load(call)
	if !ok {
		labels := []string{operation, resource.Group, resource.Resource}
		found, _ = c.series.LoadOrStore(
			call,
			&storeSeries{
				c.duration.WithLabelValues(labels...),
				c.requests.WithLabelValues(labels...),
				c.errors.WithLabelValues(labels...),
			},
		)
	}
	s := found.(*storeSeries)
	s.duration.Observe(time.Since(start).Seconds())
	s.requests.Inc()
	if err != nil {
		s.errors.Inc()
	}
}

// Get implements store.Store.
func (c *countedStore) Get(ctx context.Context, key string) (*store.KeyValue, error) {
	start := time.Now()
	kv, err := c.Store.Get(ctx, key)
	c.count("get", c.resource(key), start, err)
	return kv, err
}

// All implements store.Store.
func (c *countedStore) All(ctx context.Context, prefix string, take func([]store.KeyValue) error) (int64, error) {
	start := time.Now()
	revision, err := c.Store.All(ctx, prefix, take)
	c.count("listStream", c.resource(prefix), start, err)
	return revision, err
}

// Past implements store.Store.
func (c *countedStore) Past(
	ctx context.Context,
	prefix, after string,
	revision int64,
	limit int,
) ([]store.KeyValue, int64, error) {
	start := time.Now()
	kvs, count, err := c.Store.Past(ctx, prefix, after, revision, limit)
	c.count("list", c.resource(prefix), start, err)
	return kvs, count, err
}

// Commit implements store.Store.
func (c *countedStore) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	start := time.Now()
	r, err := c.Store.Commit(ctx, t)
	operation, resource := c.operationOf(&t)
	c.count(operation, resource, start, err)
	return r, err
}

// operationOf returns the operation and resource of a transaction. They are those of the first object among its keys;
// the other keys are claims of addresses or quota.
func (c *countedStore) operationOf(t *store.Txn) (operation string, resource schema.GroupResource) {
	for i := range t.Puts {
		if resource = c.resource(t.Puts[i].Key); resource.Resource != "" {
			return createOrUpdate(t, t.Puts[i].Key), resource
		}
	}
	for _, key := range t.Deletes {
		if resource = c.resource(key); resource.Resource != "" {
			return "delete", resource
		}
	}
	if len(t.Puts) > 0 {
		return createOrUpdate(t, t.Puts[0].Key), resource
	}
	return "delete", resource
}

// createOrUpdate returns "create" if a transaction creates a key, and "update" otherwise.
func createOrUpdate(t *store.Txn, key string) string {
	for i := range t.Guards {
		if t.Guards[i].Key == key && t.Guards[i].Revision == 0 {
			return "create"
		}
	}
	return "update"
}

// Revision implements store.Store.
func (c *countedStore) Revision(ctx context.Context) (int64, error) {
	start := time.Now()
	revision, err := c.Store.Revision(ctx)
	c.count("getCurrentResourceVersion", schema.GroupResource{}, start, err)
	return revision, err
}

// Describe implements prometheus.Collector.
func (c *countedStore) Describe(to chan<- *prometheus.Desc) {
	c.duration.Describe(to)
	c.requests.Describe(to)
	c.errors.Describe(to)
}

// Collect implements prometheus.Collector.
func (c *countedStore) Collect(to chan<- prometheus.Metric) {
	c.duration.Collect(to)
	c.requests.Collect(to)
	c.errors.Collect(to)
}

// storageSize collects the size of the store, which it reads at each scrape. If the store does not answer there is no
// value, as in upstream.
type storageSize struct {
	s    store.Sized
	desc *prometheus.Desc
}

// sizeTimeout is how long a scrape waits for the size, the same as upstream.
const sizeTimeout = time.Second

func newStorageSize(s store.Store) storageSize {
	sized, _ := s.(store.Sized)
	return storageSize{
		sized,
		prometheus.NewDesc("apiserver_storage_size_bytes", "Size of the store's file.", []string{"storage_cluster_id"},
			nil),
	}
}

// Describe implements prometheus.Collector.
func (s storageSize) Describe(to chan<- *prometheus.Desc) { to <- s.desc }

// Collect implements prometheus.Collector.
func (s storageSize) Collect(to chan<- prometheus.Metric) {
	if s.s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sizeTimeout)
	defer cancel()
	if n, err := s.s.Size(ctx); err == nil {
		to <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(n), "etcd-0")
	}
}

// resourceByKey returns a function that maps a store key to its resource. The result is empty for other keys.
func resourceByKey(c *cache.Cache) func(key string) schema.GroupResource {
	return func(key string) schema.GroupResource {
		if r := c.ResourceOf(key); r != nil {
			return r.Kind.GR()
		}
		return schema.GroupResource{}
	}
}
