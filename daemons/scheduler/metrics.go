package scheduler

import (
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/run/measure"
	"clusterctl/daemons/scheduler/cluster"
)

// metrics holds the scheduler's metrics, under upstream's names.
type metrics struct {
	attempts       *prometheus.CounterVec
	duration       *prometheus.HistogramVec
	algorithm      prometheus.Histogram
	sli            *prometheus.HistogramVec
	attemptsPerPod prometheus.Histogram
	preemptions    prometheus.Counter
	victims        prometheus.Histogram
	incomingPods   *prometheus.CounterVec
	scheduler      atomic.Pointer[scheduler] // the scheduler whose queue is reported
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_schedule_attempts_total", Help: "Attempts to schedule pods, by result.",
		}, []string{"result", "profile"}),
		duration: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_attempt_duration_seconds", Help: "Time from taking up a pod to its " +
				"binding.", Buckets: buckets,
		}, []string{"result", "profile"}),
		algorithm: measure.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_algorithm_duration_seconds", Help: "Time that choosing a node " +
				"takes.", Buckets: buckets,
		}),
		sli: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_sli_duration_seconds", Help: "Time from when a pod was first seen " +
				"without a node to its binding, by the attempts that it took.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 20),
		}, []string{"attempts"}),
		attemptsPerPod: measure.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_attempts", Help: "Attempts that it took to bind a " +
				"pod.", Buckets: prometheus.ExponentialBuckets(1, 2, 5),
		}),
		preemptions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_preemption_attempts_total", Help: "Attempts to make room for a pod by removing others.",
		}),
		victims: measure.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_preemption_victims", Help: "Pods removed by one " +
				"preemption.", Buckets: prometheus.ExponentialBuckets(1, 2, 7),
		}),
		incomingPods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_queue_incoming_pods_total", Help: "Pods that came into a part of the queue, by what " +
				"brought them there.",
		}, []string{"queue", "event"}),
	}
	pending := prometheus.NewDesc("scheduler_pending_pods",
		"Pods without a node, by the part of the queue they are in.", []string{"queue"}, nil)
	for _, c := range []prometheus.Collector{
		m.attempts, m.duration, m.algorithm, m.sli, m.attemptsPerPod, m.preemptions, m.victims, m.incomingPods,
		pendingPods{m, pending},
	} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) observeAttempt(result, profile string, took time.Duration) {
	m.attempts.WithLabelValues(result, profile).Inc()
	m.duration.WithLabelValues(result, profile).Observe(took.Seconds())
}

// Events that move pods to a part of the queue, other than events of the cluster, by upstream's names.
const (
	attemptFailed   = "ScheduleAttemptFailure"
	backoffComplete = "BackoffComplete"
	popFromBackoff  = "PopFromBackoffQ"
	waitedTooLong   = "UnschedulableTimeout"
	forceActivate   = "ForceActivate"
	podAdded        = "UnschedulablePodAdd"
	gatesOpened     = "UnschedulablePodUpdatePodSchedulingGatesEliminated"
)

// updateEvent returns what has changed of a pod that moved to another class.
func updateEvent(before, after *cluster.Pod) string {
	switch {
	case !maps.Equal(before.Labels, after.Labels):
		return "UnschedulablePodUpdatePodLabel"
	case len(before.Tolerations) != len(after.Tolerations):
		return "UnschedulablePodUpdatePodToleration"
	case !slices.Equal(before.Devices, after.Devices):
		return "UnschedulablePodUpdatePodGeneratedResourceClaim"
	}
	return "UnschedulablePodUpdate"
}

// countEntered counts pods that enter a part of the queue.
func (m *metrics) countEntered(part, event string, pods int) {
	m.incomingPods.WithLabelValues(part, event).Add(float64(pods))
}

func (m *metrics) observeDecision(took time.Duration) { m.algorithm.Observe(took.Seconds()) }

// observeBound counts a pod that was bound.
func (m *metrics) observeBound(attempts int, took time.Duration) {
	label := maxAttemptsLabel
	if attempts < 15 {
		label = strconv.Itoa(attempts)
	}
	m.sli.WithLabelValues(label).Observe(took.Seconds())
	m.attemptsPerPod.Observe(float64(attempts))
}

// maxAttemptsLabel is the largest value of the label attempts.
const maxAttemptsLabel = "15+"

// pendingPods counts pods at each scrape, so that the queue need not.
type pendingPods struct {
	m    *metrics
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (p pendingPods) Describe(ch chan<- *prometheus.Desc) { ch <- p.desc }

// Collect implements prometheus.Collector. It counts the pods in each part of the queue.
func (p pendingPods) Collect(ch chan<- prometheus.Metric) {
	s := p.m.scheduler.Load()
	if s == nil {
		return
	}
	active, backoff, unschedulable, gated := s.queue.lengths()
	for name, n := range map[string]int{"active": active, "backoff": backoff, "unschedulable": unschedulable,
		"gated": gated} {
		ch <- prometheus.MustNewConstMetric(p.desc, prometheus.GaugeValue, float64(n), name)
	}
}
