package scheduler

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have upstream's names.
type metrics struct {
	attempts  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	algorithm prometheus.Histogram
	scheduler atomic.Pointer[scheduler] // whose queue is shown
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	buckets := prometheus.ExponentialBuckets(0.0001, 2, 18)
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_schedule_attempts_total", Help: "Attempts to schedule pods, by result.",
		}, []string{"result", "profile"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_attempt_duration_seconds", Help: "Time from taking up a pod to its binding.", Buckets: buckets,
		}, []string{"result", "profile"}),
		algorithm: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_algorithm_duration_seconds", Help: "Time that choosing a node takes.", Buckets: buckets,
		}),
	}
	pending := prometheus.NewDesc("scheduler_pending_pods", "Pods without a node, by the part of the queue they are in.", []string{"queue"}, nil)
	for _, c := range []prometheus.Collector{m.attempts, m.duration, m.algorithm, pendingPods{m, pending}} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) attempt(result string, took time.Duration) {
	m.attempts.WithLabelValues(result, Name).Inc()
	if took > 0 {
		m.duration.WithLabelValues(result, Name).Observe(took.Seconds())
	}
}

func (m *metrics) decided(took time.Duration) { m.algorithm.Observe(took.Seconds()) }

// pendingPods counts when it is asked, so that the queue need not.
type pendingPods struct {
	m    *metrics
	desc *prometheus.Desc
}

// Describe and Collect make it a collector.
func (p pendingPods) Describe(ch chan<- *prometheus.Desc) { ch <- p.desc }

// Collect counts the pods in each part of the queue.
func (p pendingPods) Collect(ch chan<- prometheus.Metric) {
	s := p.m.scheduler.Load()
	if s == nil {
		return
	}
	active, backoff, unschedulable := s.queue.lengths()
	for name, n := range map[string]int{"active": active, "backoff": backoff, "unschedulable": unschedulable} {
		ch <- prometheus.MustNewConstMetric(p.desc, prometheus.GaugeValue, float64(n), name)
	}
}
