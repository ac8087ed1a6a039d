package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/run/measure"
)

// counts holds the metrics of nodes' health, under upstream's names.
type counts struct {
	size, health, lost          *prometheus.GaugeVec
	evictions                   *prometheus.CounterVec
	syncDuration, sweepDuration prometheus.Histogram
	zones                       map[string]bool // zones with metrics
}

func newCounts() counts {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "node_collector_" + name, Help: help},
			[]string{"zone"})
	}
	histogram := func(name, help string, factor float64) prometheus.Histogram {
		return measure.NewHistogram(
			prometheus.HistogramOpts{
				Name:    "node_collector_" + name,
				Help:    help,
				Buckets: prometheus.ExponentialBuckets(factor, 4, 8),
			},
		)
	}
	return counts{
		size:   gauge("zone_size", "Nodes of the zone."),
		health: gauge("zone_health", "Percentage of the zone's nodes that are ready."),
		lost:   gauge("unhealthy_nodes_in_zone", "Nodes of the zone that are not ready."),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "node_collector_evictions_total",
			Help: "Lost nodes of the zone that were given up, so that their pods move."}, []string{"zone"}),
		syncDuration: histogram("update_node_health_duration_seconds", "How long it took to look at a node's "+
			"health.", 0.001),
		sweepDuration: histogram("update_all_nodes_health_duration_seconds",
			"How long it took to look at all nodes' health.", 0.01),
		zones: map[string]bool{},
	}
}

// collectors returns the metrics, for registration.
func (c *counts) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.size, c.health, c.lost, c.evictions, c.syncDuration, c.sweepDuration}
}

// set sets the metrics of zones. A zone without nodes is set to empty and healthy. Only one goroutine may call it.
func (c *counts) set(zones map[string]Health, took time.Duration) {
	for zone := range c.zones {
		if _, ok := zones[zone]; !ok {
			c.size.WithLabelValues(zone).Set(0)
			c.health.WithLabelValues(zone).Set(100)
			c.lost.WithLabelValues(zone).Set(0)
			delete(c.zones, zone)
		}
	}
	for zone, h := range zones {
		c.zones[zone] = true
		c.evictions.WithLabelValues(zone)
		c.size.WithLabelValues(zone).Set(float64(h.Nodes))
		c.health.WithLabelValues(zone).Set(100 * float64(h.Nodes-h.Lost) / float64(h.Nodes))
		c.lost.WithLabelValues(zone).Set(float64(h.Lost))
	}
	c.sweepDuration.Observe(took.Seconds())
}
