// Package audit keeps what was asked of the API server: for each stage of a request that a
// policy names an event of audit.k8s.io/v1, as a line of JSON in a file that is rotated, or in
// batches to a webhook. What is in an event, the API server says; it waits for its place in a
// bounded queue, a moment at most.
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

// Auditor takes events and hands them to where they are kept.
type Auditor struct {
	Policy *Policy
	// Webhook is the kubeconfig of the server that events are sent to; nil: there is none. Who runs the auditor runs
	// it, too.
	Webhook *settings.File[*receiver]

	sinks  []*sink
	events prometheus.Counter
	levels *prometheus.CounterVec
	errors *prometheus.CounterVec
}

// sink is one place where events are kept. write gets them in order.
type sink struct {
	name    string
	queue   chan *auditv1.Event
	most    int           // events at a time
	wait    time.Duration // how long to gather them
	write   func(ctx context.Context, events []*auditv1.Event) error
	close   func() error
	lost    prometheus.Counter
	log     *slog.Logger
	spoke   atomic.Int64 // when the log was last told of a loss, in nanoseconds
	patient time.Duration
}

// New returns the auditor that cfg asks for, nil when it asks for none.
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
				name:    "log",
				queue:   make(chan *auditv1.Event, 10000),
				most:    256,
				write:   file.write,
				close:   file.Close,
				log:     env.Log,
				patient: time.Second,
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
				name:  "webhook",
				queue: make(chan *auditv1.Event, max(cfg.AuditWebhookBatchBufferSize, 1)),
				most:  max(cfg.AuditWebhookBatchMaxSize, 1),
				wait:  cfg.AuditWebhookBatchMaxWait,
				write: hook.write,
				close: func() error { return nil },
				log:   env.Log,
			},
		)
	}
	return a, nil
}

func (a *Auditor) add(s *sink) {
	s.lost = a.errors.WithLabelValues(s.name)
	a.sinks = append(a.sinks, s)
}

// Counted notes which level a request has.
func (a *Auditor) Counted(d *Decision) { a.levels.WithLabelValues(string(d.Level)).Inc() }

// Keep hands an event on, which must not be changed any more. Where a queue is full for longer
// than a moment it is lost there, and counted: the log must not stop the cluster.
func (a *Auditor) Keep(e *auditv1.Event) {
	a.events.Inc()
	for _, s := range a.sinks {
		select {
		case s.queue <- e:
			continue
		default:
		}
		timer := time.NewTimer(s.patient)
		select {
		case s.queue <- e:
		case <-timer.C:
			s.lose(1, errors.New("events come faster than they are written"))
		}
		timer.Stop()
	}
}

// Roomy says whether events can be kept without waiting.
func (a *Auditor) Roomy() bool {
	for _, s := range a.sinks {
		if len(s.queue) > cap(s.queue)/2 {
			return false
		}
	}
	return true
}

// lose counts events that are lost, and says so now and then.
func (s *sink) lose(n int, err error) {
	s.lost.Add(float64(n))
	now, last := time.Now().UnixNano(), s.spoke.Load()
	if now-last > int64(10*time.Second) && s.spoke.CompareAndSwap(last, now) {
		s.log.Error("audit events are lost", "to", s.name, "err", err)
	}
}

// Run writes events until ctx ends, and then those that are left.
func (a *Auditor) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, s := range a.sinks {
		g.Go(func() error { return s.run(ctx) })
	}
	return g.Wait()
}

// farewell is how long the last events may take.
const farewell = 10 * time.Second

func (s *sink) run(ctx context.Context) error {
	// What is being written when ctx ends has some time yet.
	writing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(farewell, end) })()
	batch := make([]*auditv1.Event, 0, s.most)
	for ctx.Err() == nil {
		select {
		case e := <-s.queue:
			batch = append(batch[:0], e)
		case <-ctx.Done():
			continue
		}
		batch = s.gather(ctx, batch)
		s.deliver(writing, batch)
	}
	for {
		batch = s.more(batch[:0])
		if len(batch) == 0 {
			return s.close()
		}
		s.deliver(writing, batch)
	}
}

func (s *sink) deliver(ctx context.Context, batch []*auditv1.Event) {
	if err := s.write(ctx, batch); err != nil {
		s.lose(len(batch), err)
	}
}

// gather waits for more events to write at once.
func (s *sink) gather(ctx context.Context, batch []*auditv1.Event) []*auditv1.Event {
	if batch = s.more(batch); s.wait == 0 || len(batch) == s.most {
		return batch
	}
	timer := time.NewTimer(s.wait)
	defer timer.Stop()
	for len(batch) < s.most {
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

func (s *sink) more(batch []*auditv1.Event) []*auditv1.Event {
	for len(batch) < s.most {
		select {
		case e := <-s.queue:
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}
