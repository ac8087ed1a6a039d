package apiserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/apiserver/cache"
)

// objectCounts collects the number of objects of each kind.
type objectCounts struct {
	cache                      *cache.Cache
	objects, stale, unreadable *prometheus.Desc
}

func newObjectCounts(c *cache.Cache) objectCounts {
	return objectCounts{c,
		prometheus.NewDesc("apiserver_resource_objects", "Objects stored.", []string{"group", "resource"}, nil),
		prometheus.NewDesc("apiserver_storage_objects",
			"Objects stored, by the name that releases before 1.34 have for it.", []string{"resource"}, nil),
		prometheus.NewDesc("apiserver_storage_unreadable_objects",
			"Objects stored that cannot be read; passing: whether their key's plugin does not answer.",
			[]string{"group", "resource", "passing"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c objectCounts) Describe(to chan<- *prometheus.Desc) {
	to <- c.objects
	to <- c.stale
	to <- c.unreadable
}

// Collect implements prometheus.Collector.
func (c objectCounts) Collect(to chan<- prometheus.Metric) {
	for _, r := range c.cache.Resources() {
		n := float64(r.Len())
		to <- prometheus.MustNewConstMetric(c.objects, prometheus.GaugeValue, n, r.Kind.GVK.Group, r.Kind.Resource)
		to <- prometheus.MustNewConstMetric(c.stale, prometheus.GaugeValue, n, r.Kind.GR().String())
		if all, lasting := r.CountUnreadable(); all > 0 {
			to <- prometheus.MustNewConstMetric(c.unreadable, prometheus.GaugeValue, float64(lasting), r.Kind.GVK.Group,
				r.Kind.Resource, "false")
			to <- prometheus.MustNewConstMetric(c.unreadable, prometheus.GaugeValue, float64(all-lasting),
				r.Kind.GVK.Group, r.Kind.Resource, "true")
		}
	}
}
