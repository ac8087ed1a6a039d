package apiserver

import "github.com/prometheus/client_golang/prometheus"

// unavailableNow collects which aggregated group versions are unavailable.
type unavailableNow struct {
	s    *Server
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (u unavailableNow) Describe(to chan<- *prometheus.Desc) { to <- u.desc }

// Collect implements prometheus.Collector.
func (u unavailableNow) Collect(to chan<- prometheus.Metric) {
	serving := u.s.serving.Load()
	if serving == nil {
		return
	}
	for gv, a := range serving.aggregated {
		value := 0.0
		if a.unavailable != "" {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(u.desc, prometheus.GaugeValue, value, gv.Version+"."+gv.Group)
	}
}
