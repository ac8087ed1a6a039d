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
	lastResult bool
	runLength  int32
	decided    bool
	verdict    bool
}

// Add counts one result and reports whether the verdict has changed.
func (c *Count) Add(ok bool, p *corev1.Probe) (verdict, changed bool) {
	if c.runLength == 0 || c.lastResult != ok {
		c.lastResult, c.runLength = ok, 0
	}
	c.runLength++
	if ok && c.runLength < max(p.SuccessThreshold, 1) || !ok && c.runLength < thresholdFor(p) {
		return c.verdict, false
	}
	changed = !c.decided || c.verdict != ok
	c.decided, c.verdict = true, ok
	return ok, changed
}

func thresholdFor(p *corev1.Probe) int32 {
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
	// OnVerdict is called when the probe's verdict changes.
	OnVerdict func(ok bool)
	// OnFailure is called for every failure that counts towards the threshold.
	OnFailure func(err error)
	// OnResult is called for every result that counts, with its duration. It may be nil.
	OnResult func(took time.Duration, err error)
}

// firstInterval is how soon a container that was just started is probed again after a failure. Failures within the
// first period are not counted: the early probes only detect sooner that the container is up.
const firstInterval = 15 * time.Millisecond

// Run probes until ctx ends. The first probe runs after the initial delay.
func (w *Worker) Run(ctx context.Context) {
	period := time.Duration(max(w.Probe.PeriodSeconds, 0)) * time.Second
	if period == 0 {
		period = 10 * time.Second
	}
	begin := w.Started.Add(time.Duration(w.Probe.InitialDelaySeconds) * time.Second)
	if !sleep(ctx, time.Until(begin)) {
		return
	}
	var count Count
	eager := firstInterval
	eagerEnd := time.Now().Add(min(period, 5*time.Second))
	fresh := time.Since(w.Started) < period+time.Duration(w.Probe.InitialDelaySeconds)*time.Second
	var next time.Time
	for {
		start := time.Now()
		err := Run(ctx, w.Probe, w.Target)
		took := time.Since(start)
		if ctx.Err() != nil {
			return
		}
		if err != nil && fresh && !count.decided && w.Kind != Liveness && w.Probe.Exec == nil &&
			time.Now().Add(eager).Before(eagerEnd) {
			if !sleep(ctx, eager) {
				return
			}
			eager = min(eager*3/2, time.Second)
			continue
		}
		if w.OnResult != nil {
			w.OnResult(took, err)
		}
		if verdict, changed := count.Add(err == nil, w.Probe); changed {
			w.OnVerdict(verdict)
		}
		if err != nil {
			w.OnFailure(err)
		}
		if next.IsZero() || time.Now().After(next.Add(period)) {
			next = time.Now()
		}
		next = next.Add(period)
		if !sleep(ctx, time.Until(next)) {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
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
