package gitops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/run/measure"
)

// Measures are the metrics of a controller.
type Measures struct {
	rounds   *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewMeasures returns the metrics, which it registers.
func NewMeasures(registry prometheus.Registerer) *Measures {
	m := &Measures{
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gitops_reconciliations_total",
			Help: "Rounds of reconciliations, by their outcome: ready, progressing, stopped, or the reason of a " +
				"failure."},
			[]string{"outcome"}),
		duration: measure.NewHistogram(prometheus.HistogramOpts{Name: "gitops_reconciliation_duration_seconds",
			Help: "Duration of one round of a source.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 8)}),
	}
	registry.MustRegister(m.rounds, m.duration)
	return m
}

// Reconciled implements Observer.
func (m *Measures) Reconciled(_ Key, outcome string, took time.Duration) {
	m.rounds.WithLabelValues(outcome).Inc()
	m.duration.Observe(took.Seconds())
}
