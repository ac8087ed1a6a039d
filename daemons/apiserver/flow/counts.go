package flow

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// These are the reasons for refusing a request, as indexes into reasons.
const (
	queueFull = iota
	concurrencyLimit
	timedOut
	cancelled
)

var rejectionReasons = [...]string{"queue-full", "concurrency-limit", "time-out", "cancelled"}

// requestCounters holds the counters of a schema's requests in a level. It outlives changes of both.
type requestCounters struct {
	level, schema                         string
	dispatched, executing, seats, waiting atomic.Int64
	rejected                              [len(rejectionReasons)]atomic.Int64
	waited                                [2]histogram // time in a queue: of refused requests, and of the others
	// execution time: of requests except watches, and of watches until they have sent their initial events
	executed [2]histogram
}

// recordBegin counts a request that gets its seats.
func (t *requestCounters) recordBegin(seats int) {
	t.executing.Add(1)
	t.seats.Add(int64(seats))
}

// recordEnd counts a request that returns its seats.
func (t *requestCounters) recordEnd(seats int) {
	t.executing.Add(-1)
	t.seats.Add(-int64(seats))
}

// RecordExecution records how long a request held its seats. A watch holds them until it has sent its initial events.
func (s *Schema) RecordExecution(d time.Duration, watch bool) {
	if watch {
		s.tally.executed[1].observe(d)
	} else {
		s.tally.executed[0].observe(d)
	}
}

// isIdle reports whether no request is executing or waiting.
func (t *requestCounters) isIdle() bool { return t.executing.Load() == 0 && t.waiting.Load() == 0 }

// metricsCollector collects upstream's metrics of priority and fairness at each scrape. Levels and schemas are the only
// labels without a fixed set of values, and users who may create those are trusted anyway.
type metricsCollector struct {
	controller                                                              *Controller
	dispatched, executing, seats, queued, rejected, waited, executed, bytes *prometheus.Desc
	nominal, lower, upper, current                                          *prometheus.Desc
}

func newCounts(c *Controller) metricsCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("apiserver_flowcontrol_"+name, help, labels, nil)
	}
	const level, schema = "priority_level", "flow_schema"
	return metricsCollector{
		controller: c,
		dispatched: desc("dispatched_requests_total", "Requests that got a seat.", level, schema),
		rejected:   desc("rejected_requests_total", "Requests that got no seat.", level, schema, "reason"),
		executing:  desc("current_executing_requests", "Requests that have a seat.", level, schema),
		seats:      desc("current_executing_seats", "Seats that are taken.", level, schema),
		queued:     desc("current_inqueue_requests", "Requests that wait for a seat.", level, schema),
		waited: desc("request_wait_duration_seconds", "How long requests waited in a queue.", level, schema,
			"execute"),
		executed: desc("request_execution_seconds",
			"How long requests took once they had a seat; watches until they had sent what there was.", level, schema,
			"type"),
		nominal: desc("nominal_limit_seats", "Seats of a priority level.", level),
		lower:   desc("lower_limit_seats", "Seats of a priority level that it never lends.", level),
		upper:   desc("upper_limit_seats", "Seats of a priority level with what it may borrow.", level),
		current: desc("current_limit_seats", "Seats that a priority level could use now.", level),
		bytes:   desc("list_bytes", "Bytes of lists that are being answered."),
	}
}

// Describe implements prometheus.Collector.
func (n metricsCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{n.dispatched, n.rejected, n.executing, n.seats, n.queued, n.waited, n.executed,
		n.nominal, n.lower, n.upper, n.current, n.bytes} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (n metricsCollector) Collect(to chan<- prometheus.Metric) {
	var metrics []prometheus.Metric
	add := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		metrics = append(metrics, prometheus.MustNewConstMetric(d, t, v, labels...))
	}
	n.controller.mu.Lock()
	for _, l := range n.controller.levels {
		add(n.nominal, prometheus.GaugeValue, float64(l.nominal), l.name)
		add(n.lower, prometheus.GaugeValue, float64(l.minSeats), l.name)
		add(n.upper, prometheus.GaugeValue, float64(min(l.maxSeats, n.controller.Seats)), l.name)
		add(n.current, prometheus.GaugeValue, float64(n.controller.seatLimit(l)), l.name)
	}
	for _, t := range n.controller.tallies {
		add(n.dispatched, prometheus.CounterValue, float64(t.dispatched.Load()), t.level, t.schema)
		add(n.executing, prometheus.GaugeValue, float64(t.executing.Load()), t.level, t.schema)
		add(n.seats, prometheus.GaugeValue, float64(t.seats.Load()), t.level, t.schema)
		add(n.queued, prometheus.GaugeValue, float64(t.waiting.Load()), t.level, t.schema)
		for i, reason := range rejectionReasons {
			if count := t.rejected[i].Load(); count > 0 {
				add(n.rejected, prometheus.CounterValue, float64(count), t.level, t.schema, reason)
			}
		}
		for i, kind := range []string{"regular", "watch"} {
			if m := t.executed[i].metric(n.executed, t.level, t.schema, kind); m != nil {
				metrics = append(metrics, m)
			}
			if m := t.waited[i].metric(n.waited, t.level, t.schema, strconv.FormatBool(i == 1)); m != nil {
				metrics = append(metrics, m)
			}
		}
	}
	add(n.bytes, prometheus.GaugeValue, float64(n.controller.bytes))
	n.controller.mu.Unlock()
	for _, m := range metrics {
		to <- m
	}
}

// seatLimit returns how many seats a level could use now: those that it never lends, and those that no other level uses
// or may claim.
func (c *Controller) seatLimit(l *level) int {
	if l.isExempt {
		return c.Seats
	}
	return min(l.maxSeats, max(l.minSeats, c.Seats-(c.reserved-max(l.used, l.minSeats))))
}
