package proxy

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/run/measure"
)

// programmingMetrics are the metrics of the delay between a change and its rules, with upstream's names. EndpointSlices
// carry the time of the pod or Service change that caused them.
type programmingMetrics struct {
	start          time.Time // changes before this time are not measured
	seconds        prometheus.Histogram
	lastProgrammed prometheus.Gauge // when the rules were last up to date
	lastQueued     prometheus.Gauge // when a change was last queued

	mu      sync.Mutex
	pending map[string]time.Time // by slice: the oldest change that is not in the rules yet
}

func newProgrammingMetrics(now time.Time) *programmingMetrics {
	return &programmingMetrics{
		start: now, pending: map[string]time.Time{},
		seconds: measure.NewHistogram(prometheus.HistogramOpts{
			Name: "kubeproxy_network_programming_duration_seconds", Help: "From the change of a service or of its " +
				"pods to the rules that follow from it.",
			Buckets: slices.Concat(prometheus.LinearBuckets(.25, .25, 2), prometheus.LinearBuckets(1, 1, 59),
				prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7)),
		}),
		lastProgrammed: prometheus.NewGauge(
			prometheus.GaugeOpts{
				Name: "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
				Help: "When the rules were last brought up to date.",
			},
		),
		lastQueued: prometheus.NewGauge(
			prometheus.GaugeOpts{
				Name: "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
				Help: "When the rules last had to be brought up to date.",
			},
		),
	}
}

// collectors returns the metrics to register.
func (p *programmingMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{p.seconds, p.lastProgrammed, p.lastQueued}
}

// handler returns an event handler that records the changes that caused slice updates.
func (p *programmingMetrics) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { p.recordChange(nil, o) },
		UpdateFunc: p.recordChange,
	}
}

func (p *programmingMetrics) recordChange(previous, current any) {
	slice, ok := current.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	text := slice.Annotations[corev1.EndpointsLastChangeTriggerTime]
	if old, ok := previous.(*discoveryv1.EndpointSlice); ok &&
		old.Annotations[corev1.EndpointsLastChangeTriggerTime] == text {
		return
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Before(p.start) {
		return
	}
	key := slice.Namespace + "/" + slice.Name
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, ok := p.pending[key]; !ok || at.Before(before) {
		p.pending[key] = at
	}
}

// takePending returns the pending changes, which the next computation of the rules includes.
func (p *programmingMetrics) takePending() map[string]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.pending
	p.pending = map[string]time.Time{}
	return taken
}

// recordProgrammed records that the rules include the changes.
func (p *programmingMetrics) recordProgrammed(taken map[string]time.Time, now time.Time) {
	for _, at := range taken {
		p.seconds.Observe(max(now.Sub(at), 0).Seconds())
	}
	p.lastProgrammed.Set(float64(now.UnixNano()) / 1e9)
}

// restorePending makes the changes pending again.
func (p *programmingMetrics) restorePending(taken map[string]time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, at := range taken {
		if before, ok := p.pending[key]; !ok || at.Before(before) {
			p.pending[key] = at
		}
	}
}
