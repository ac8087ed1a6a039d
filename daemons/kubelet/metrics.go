package kubelet

import (
	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/run/measure"
)

// metrics are the kubelet's own, under upstream's names.
type metrics struct {
	startSeconds  prometheus.Histogram
	probes        *prometheus.CounterVec
	leaseRenewals prometheus.Counter
	evictions     *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		startSeconds: measure.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_duration_seconds", Help: "From seeing a pod to its being ready.",
			Buckets: []float64{.05, .1, .15, .2, .25, .5, 1, 2, 5, 10, 30, 60, 120, 300},
		}),
		probes:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "prober_probe_total", Help: "Probes that did not succeed."}, []string{"probe_type", "result"}),
		leaseRenewals: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_lease_renewals_total", Help: "Renewals of the node's lease."}),
		evictions:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_evictions", Help: "Pods ended because the node ran short."}, []string{"eviction_signal"}),
	}
	r.MustRegister(m.startSeconds, m.probes, m.leaseRenewals, m.evictions)
	return m
}
