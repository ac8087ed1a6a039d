package loop

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"clusterctl/daemons/run/measure"
)

// queueMetrics holds the metrics of queues, under upstream's names. Each has the queue's name as its label.
type queueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, workDuration      *prometheus.HistogramVec
}

// CountQueues registers the metrics of queues and returns their provider. Every queue that is made with the provider is
// counted by its name.
func CountQueues(registry prometheus.Registerer) (workqueue.MetricsProvider, error) {
	label, buckets := []string{"name"}, prometheus.ExponentialBuckets(1e-8, 10, 12) // seconds
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, label)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, label)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return measure.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, label)
	}
	c := queueMetrics{
		depth: gauge("workqueue_depth", "Keys that wait in a queue."),
		unfinished: gauge("workqueue_unfinished_work_seconds",
			"How long the keys in work have been in work, together."),
		longest: gauge("workqueue_longest_running_processor_seconds",
			"How long the key that has been in work longest has been."),
		adds: counter("workqueue_adds_total", "Keys put into a queue."),
		retries: counter("workqueue_retries_total",
			"Keys to be taken up again later, after a failure or at their time."),
		latency: histogram("workqueue_queue_duration_seconds",
			"Time that a key waits in a queue until it is taken up."),
		workDuration: histogram("workqueue_work_duration_seconds", "Time that work on a key takes."),
	}
	for _, collector := range []prometheus.Collector{c.depth, c.unfinished, c.longest, c.adds, c.retries, c.latency,
		c.workDuration} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("register the metrics of queues: %w", err)
		}
	}
	return c, nil
}

func (c queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return c.depth.WithLabelValues(name)
}

func (c queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return c.adds.WithLabelValues(name)
}

func (c queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return c.latency.WithLabelValues(name)
}

func (c queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return c.workDuration.WithLabelValues(name)
}

func (c queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return c.unfinished.WithLabelValues(name)
}

func (c queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return c.longest.WithLabelValues(name)
}

func (c queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return c.retries.WithLabelValues(name)
}
