package aggregate

import (
	"github.com/prometheus/client_golang/prometheus"
)

// unavailableCollector collects which aggregated group versions are unavailable.
type unavailableCollector struct {
	s    *Aggregator
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (u unavailableCollector) Describe(to chan<- *prometheus.Desc) { to <- u.desc }

// Collect implements prometheus.Collector.
func (u unavailableCollector) Collect(to chan<- prometheus.Metric) {
	for gv, a := range u.s.server.AggregatedVersions() {
		value := 0.0
		if a.UnavailableReason != "" {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(u.desc, prometheus.GaugeValue, value, gv.Version+"."+gv.Group)
	}
}
