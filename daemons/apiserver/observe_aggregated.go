package apiserver

import (
	"github.com/prometheus/client_golang/prometheus"
)

// unavailableCollector collects which aggregated group versions are unavailable.
type unavailableCollector struct {
	s    *Server
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (u unavailableCollector) Describe(to chan<- *prometheus.Desc) { to <- u.desc }

// Collect implements prometheus.Collector.
func (u unavailableCollector) Collect(to chan<- prometheus.Metric) {
	serving := u.s.serving.Load()
	if serving == nil {
		return
	}
	for gv, a := range serving.aggregated {
		value := 0.0
		if a.unavailableReason != "" {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(u.desc, prometheus.GaugeValue, value, gv.Version+"."+gv.Group)
	}
}
