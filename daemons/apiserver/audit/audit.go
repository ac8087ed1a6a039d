// Package audit records requests to the API server. For each stage of a request that a policy selects, it writes an
// event of audit.k8s.io/v1: as a line of JSON to a file that is rotated, or in batches to a webhook. The API server
// fills in the events. It waits only a moment for a place in a bounded queue.
package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"clusterctl/daemons/apiserver/settings"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

// Auditor passes events to its sinks.
type Auditor struct {
	Policy *Policy
	// Webhook is the kubeconfig of the server that receives events; nil if there is none. The caller that runs the
	// auditor also runs Webhook.
	Webhook *settings.File[*receiver]

	sinks  []*sink
	events prometheus.Counter
	levels *prometheus.CounterVec
	errors *prometheus.CounterVec
}

// sink is one destination of events. write receives them in order.
type sink struct {
	name         string
	queue        chan *auditv1.Event
	maxBatch     int           // events in one batch
	batchWait    time.Duration // how long to collect a batch
	write        func(ctx context.Context, events []*auditv1.Event) error
	close        func() error
	lost         prometheus.Counter
	log          *slog.Logger
	lossLoggedAt atomic.Int64 // when a loss was last logged, in nanoseconds
	fullWait     time.Duration
}

// New returns the auditor that cfg configures; nil if it configures none.
func New(cfg config.APIServer, env run.Env) (*Auditor, error) {
	if cfg.AuditLogPath == "" && cfg.AuditWebhookConfigFile == "" {
		return nil, nil
	}
	if cfg.AuditPolicyFile == "" {
		return nil, errors.New("the audit log needs --audit-policy-file: without a policy nothing is kept")
	}
	policy, err := ReadPolicy(cfg.AuditPolicyFile)
	if err != nil {
		return nil, err
	}
	a := &Auditor{
		Policy: policy,
		events: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "apiserver_audit_event_total", Help: "Audit events that were made."},
		),
		levels: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "apiserver_audit_level_total",
				Help: "Requests by the level that the audit policy gives them.",
			},
			[]string{"level"},
		),
		errors: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "apiserver_audit_error_total",
				Help: "Audit events that were lost, by where they should have gone.",
			},
			[]string{"plugin"},
		),
	}
	if err := errors.Join(env.Metrics.Register(a.events), env.Metrics.Register(a.levels),
		env.Metrics.Register(a.errors)); err != nil {
		return nil, fmt.Errorf("register the audit log's metrics: %w", err)
	}
	if cfg.AuditLogPath != "" {
		file, err := openLog(cfg)
		if err != nil {
			return nil, err
		}
		a.add(
			&sink{
				name:     "log",
				queue:    make(chan *auditv1.Event, 10000),
				maxBatch: 256,
				write:    file.write,
				close:    file.Close,
				log:      env.Log,
				fullWait: time.Second,
			},
		)
	}
	if cfg.AuditWebhookConfigFile != "" {
		hook, err := newWebhook(cfg, env.Log)
		if err != nil {
			return nil, err
		}
		a.Webhook = hook.file
		a.add(
			&sink{
				name:      "webhook",
				queue:     make(chan *auditv1.Event, max(cfg.AuditWebhookBatchBufferSize, 1)),
				maxBatch:  max(cfg.AuditWebhookBatchMaxSize, 1),
				batchWait: cfg.AuditWebhookBatchMaxWait,
				write:     hook.write,
				close:     func() error { return nil },
				log:       env.Log,
			},
		)
	}
	return a, nil
}

func (a *Auditor) add(s *sink) {
	s.lost = a.errors.WithLabelValues(s.name)
	a.sinks = append(a.sinks, s)
}

// Count counts a request by its level.
func (a *Auditor) Count(d *Decision) { a.levels.WithLabelValues(string(d.Level)).Inc() }

// Record passes on an event, which must not be changed any more. If a queue stays full for more than a moment, the
// event is lost for that sink and counted. The audit log must not stop the cluster.
func (a *Auditor) Record(e *auditv1.Event) {
	a.events.Inc()
	for _, s := range a.sinks {
		select {
		case s.queue <- e:
			continue
		default:
		}
		timer := time.NewTimer(s.fullWait)
		select {
		case s.queue <- e:
		case <-timer.C:
			s.countLost(1, errors.New("events come faster than they are written"))
		}
		timer.Stop()
	}
}

// CanRecordNow reports whether events can be recorded without waiting.
func (a *Auditor) CanRecordNow() bool {
	for _, s := range a.sinks {
		if len(s.queue) > cap(s.queue)/2 {
			return false
		}
	}
	return true
}

// countLost counts lost events, and logs that at most once in ten seconds.
func (s *sink) countLost(n int, err error) {
	s.lost.Add(float64(n))
	now, last := time.Now().UnixNano(), s.lossLoggedAt.Load()
	if now-last > int64(10*time.Second) && s.lossLoggedAt.CompareAndSwap(last, now) {
		s.log.Error("audit events are lost", "to", s.name, "err", err)
	}
}

// Run writes events until ctx ends, and then the remaining ones.
func (a *Auditor) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, s := range a.sinks {
		g.Go(func() error { return s.run(ctx) })
	}
	return g.Wait()
}

// shutdownTimeout is how long writing the last events may take.
const shutdownTimeout = 10 * time.Second

func (s *sink) run(ctx context.Context) error {
	// A write in progress when ctx ends may continue for that long.
	writing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(shutdownTimeout, end) })()
	batch := make([]*auditv1.Event, 0, s.maxBatch)
	for ctx.Err() == nil {
		select {
		case e := <-s.queue:
			batch = append(batch[:0], e)
		case <-ctx.Done():
			continue
		}
		batch = s.collectBatch(ctx, batch)
		s.deliver(writing, batch)
	}
	for {
		batch = s.appendQueued(batch[:0])
		if len(batch) == 0 {
			return s.close()
		}
		s.deliver(writing, batch)
	}
}

func (s *sink) deliver(ctx context.Context, batch []*auditv1.Event) {
	if err := s.write(ctx, batch); err != nil {
		s.countLost(len(batch), err)
	}
}

// collectBatch collects more events into a batch.
func (s *sink) collectBatch(ctx context.Context, batch []*auditv1.Event) []*auditv1.Event {
	if batch = s.appendQueued(batch); s.batchWait == 0 || len(batch) == s.maxBatch {
		return batch
	}
	timer := time.NewTimer(s.batchWait)
	defer timer.Stop()
	for len(batch) < s.maxBatch {
		select {
		case e := <-s.queue:
			batch = append(batch, e)
		case <-timer.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

func (s *sink) appendQueued(batch []*auditv1.Event) []*auditv1.Event {
	for len(batch) < s.maxBatch {
		select {
		case e := <-s.queue:
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}
