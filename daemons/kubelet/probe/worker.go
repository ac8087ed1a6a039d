package probe

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind is the kind of a probe.
type Kind string

// These are the kinds of probes.
const (
	Liveness  Kind = "liveness"
	Readiness Kind = "readiness"
	Startup   Kind = "startup"
)

// Count tracks the results of one probe: the run of equal results, and the verdict.
type Count struct {
	last    bool
	run     int32
	decided bool
	verdict bool
}

// Add counts one result and reports whether the verdict has changed.
func (c *Count) Add(ok bool, p *corev1.Probe) (verdict, changed bool) {
	if c.run == 0 || c.last != ok {
		c.last, c.run = ok, 0
	}
	c.run++
	if ok && c.run < max(p.SuccessThreshold, 1) || !ok && c.run < threshold(p) {
		return c.verdict, false
	}
	changed = !c.decided || c.verdict != ok
	c.decided, c.verdict = true, ok
	return ok, changed
}

func threshold(p *corev1.Probe) int32 {
	if p.FailureThreshold <= 0 {
		return 3
	}
	return p.FailureThreshold
}

// Worker probes one container while it runs.
type Worker struct {
	Kind    Kind
	Probe   *corev1.Probe
	Target  Target
	Started time.Time // start time of the container
	// Verdict is called when the probe's verdict changes.
	Verdict func(ok bool)
	// Failure is called for every failure that counts towards the threshold.
	Failure func(err error)
	// Result is called for every result that counts, with its duration. It may be nil.
	Result func(took time.Duration, err error)
}

// first is how soon a container that was just started is probed again after a failure. Failures within the first period
// are not counted: the early probes only detect sooner that the container is up.
const first = 15 * time.Millisecond

// Run probes until ctx ends. The first probe runs after the initial delay.
func (w *Worker) Run(ctx context.Context) {
	period := time.Duration(max(w.Probe.PeriodSeconds, 0)) * time.Second
	if period == 0 {
		period = 10 * time.Second
	}
	begin := w.Started.Add(time.Duration(w.Probe.InitialDelaySeconds) * time.Second)
	if !wait(ctx, time.Until(begin)) {
		return
	}
	var count Count
	eager := first
	eagerEnd := time.Now().Add(min(period, 5*time.Second))
	fresh := time.Since(w.Started) < period+time.Duration(w.Probe.InitialDelaySeconds)*time.Second
	var next time.Time
	for {
		began := time.Now()
		err := Once(ctx, w.Probe, w.Target)
		took := time.Since(began)
		if ctx.Err() != nil {
			return
		}
		if err != nil && fresh && !count.decided && w.Kind != Liveness && w.Probe.Exec == nil &&
			time.Now().Add(eager).Before(eagerEnd) {
			if !wait(ctx, eager) {
				return
			}
			eager = min(eager*3/2, time.Second)
			continue
		}
		if w.Result != nil {
			w.Result(took, err)
		}
		if verdict, changed := count.Add(err == nil, w.Probe); changed {
			w.Verdict(verdict)
		}
		if err != nil {
			w.Failure(err)
		}
		if next.IsZero() || time.Now().After(next.Add(period)) {
			next = time.Now()
		}
		next = next.Add(period)
		if !wait(ctx, time.Until(next)) {
			return
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
