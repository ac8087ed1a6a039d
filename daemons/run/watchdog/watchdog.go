// Package watchdog notifies systemd's watchdog that a process makes progress. A process that is short of CPU must not
// count as hanging: while its reports are late, it requests a longer timeout. The caller provides the health checks.
package watchdog

import (
	"context"
	"fmt"
	"time"

	"clusterctl/daemons/run/manager"
)

// Watch notifies systemd within the watchdog interval whenever live returns nil, until ctx ends. If live does not
// return, the process counts as hanging. send sends one message of sd_notify(3). Watch returns at once if the unit has
// no watchdog.
func Watch(ctx context.Context, send func(message string), live func(context.Context) error) {
	period := manager.Watchdog()
	if period == 0 {
		return
	}
	watch(ctx, period, send, live)
}

func watch(ctx context.Context, period time.Duration, send func(message string), live func(context.Context) error) {
	p := newTimeoutPolicy(period, time.Now())
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		call, cancel := context.WithTimeout(ctx, p.interval)
		err := live(call)
		cancel()
		message := ""
		if timeout, changed := p.recordReport(time.Now()); changed {
			message = fmt.Sprintf("WATCHDOG_USEC=%d", timeout.Microseconds())
		}
		if err == nil {
			message = manager.Alive + "\n" + message
		}
		if message != "" {
			send(message)
		}
	}
}

// timeoutPolicy computes from the process's delays how long systemd should wait for it.
type timeoutPolicy struct {
	timeout, interval time.Duration // the unit's watchdog timeout, and the interval between reports
	lastReport        time.Time
	lastLate          time.Time // when a report was last late; zero if never
	isExtended        bool
}

const (
	reportsPerTimeout = 4               // per watchdog timeout
	timeoutFactor     = 6               // factor by which a longer timeout is requested
	calmPeriod        = 2 * time.Minute // time without delay after which the normal timeout is restored
)

func newTimeoutPolicy(period time.Duration, now time.Time) *timeoutPolicy {
	return &timeoutPolicy{timeout: period, interval: period / reportsPerTimeout, lastReport: now}
}

// recordReport records the time of a report. It returns the timeout that systemd should use from now on, and whether it
// changed. A process that is short of CPU reports late, at first by a short time.
func (p *timeoutPolicy) recordReport(now time.Time) (timeout time.Duration, changed bool) {
	if delay := now.Sub(p.lastReport) - p.interval; delay > p.interval/10 {
		p.lastLate = now
	}
	p.lastReport = now
	before := p.isExtended
	p.isExtended = !p.lastLate.IsZero() && now.Sub(p.lastLate) < calmPeriod
	if p.isExtended {
		return timeoutFactor * p.timeout, !before
	}
	return p.timeout, before
}
