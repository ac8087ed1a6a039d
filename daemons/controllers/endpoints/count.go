package endpoints

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"

	"clusterctl/daemons/controllers/loop"
)

// counts holds the metrics of endpoint slices, under upstream's names.
type counts struct {
	changes, syncs          *prometheus.CounterVec
	perSync, added, removed *prometheus.HistogramVec
}

// EndpointBuckets are the histogram buckets, in endpoints, for the number of endpoints added or removed by one sync.
var EndpointBuckets = prometheus.ExponentialBuckets(2, 2, 15)

func newCounts(c loop.Context, services corelisters.ServiceLister, slices discoverylisters.EndpointSliceLister) counts {
	const sub = "endpoint_slice_controller_"
	CountSlices(c, sub, managedBy, "Services with a selector", slices)
	c.RegisterMetrics(trafficCollector{services})
	return counts{
		changes: c.Counter(sub+"changes", "Slices that were changed, by how: create, update, delete.", "operation"),
		syncs: c.Counter(sub+"syncs",
			"How often the slices of a Service were looked at, by what came of it: success, stale, error.", "result"),
		perSync: c.Histogram(sub+"endpointslices_changed_per_sync",
			"Slices that were changed when those of a Service were looked at.", prometheus.DefBuckets, "topology",
			"traffic_distribution"),
		added: c.Histogram(sub+"endpoints_added_per_sync",
			"Endpoints that came when the slices of a Service were looked at.", EndpointBuckets),
		removed: c.Histogram(sub+"endpoints_removed_per_sync",
			"Endpoints that went when the slices of a Service were looked at.", EndpointBuckets),
	}
}

// observeWrites counts the changes to a Service's slices and the result of writing them.
func (c *counts) observeWrites(service *corev1.Service, did Planned, err error) {
	switch {
	case apierrors.IsConflict(err):
		c.syncs.WithLabelValues("stale").Inc()
		return
	case err != nil:
		c.syncs.WithLabelValues("error").Inc()
		return
	}
	c.syncs.WithLabelValues("success").Inc()
	for operation, n := range map[string]int{"create": len(did.Create), "update": len(did.Update),
		"delete": len(did.Delete)} {
		c.changes.WithLabelValues(operation).Add(float64(n))
	}
	c.added.WithLabelValues().Observe(float64(did.Added))
	c.removed.WithLabelValues().Observe(float64(did.Removed))
	topology, traffic := "Disabled", ""
	if wantsBalancedHints(service) {
		topology = "Auto"
	} else if t := service.Spec.TrafficDistribution; t != nil {
		traffic = *t
	}
	c.perSync.WithLabelValues(topology, traffic).Observe(float64(len(did.Create) + len(did.Update) + len(did.Delete)))
}

// trafficCollector collects how many Services have each traffic distribution, at each scrape.
type trafficCollector struct{ services corelisters.ServiceLister }

var countOfTraffic = prometheus.NewDesc("endpoint_slice_controller_services_count_by_traffic_distribution",
	"Services with a traffic distribution.", []string{"traffic_distribution"}, nil)

// Describe implements prometheus.Collector.
func (trafficCollector) Describe(to chan<- *prometheus.Desc) { to <- countOfTraffic }

// Collect implements prometheus.Collector.
func (c trafficCollector) Collect(to chan<- prometheus.Metric) {
	services, err := c.services.List(labels.Everything())
	if err != nil {
		return
	}
	traffic := map[string]int{}
	for _, s := range services {
		if t := s.Spec.TrafficDistribution; t != nil {
			traffic[*t]++
		}
	}
	for t, n := range traffic {
		to <- prometheus.MustNewConstMetric(countOfTraffic, prometheus.GaugeValue, float64(n), t)
	}
}
