// Package watchdog tells systemd's watchdog that a process makes progress. A process that gets no CPU is not taken for
// one that hangs: while it runs late, it asks for more patience. Health checks are their caller's.
package watchdog

import (
	"context"
	"fmt"
	"time"

	"clusterctl/daemons/run/manager"
)

// Watch tells systemd, in time for its watchdog, whenever live returns nil, until ctx ends. A live that does not return
// is a process that hangs. send is one message of sd_notify(3). Watch returns at once when the unit has no watchdog.
func Watch(ctx context.Context, send func(message string), live func(context.Context) error) {
	period := manager.Watchdog()
	if period == 0 {
		return
	}
	watch(ctx, period, send, live)
}

func watch(ctx context.Context, period time.Duration, send func(message string), live func(context.Context) error) {
	p := newPace(period, time.Now())
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		call, cancel := context.WithTimeout(ctx, p.every)
		err := live(call)
		cancel()
		message := ""
		if patience, changed := p.at(time.Now()); changed {
			message = fmt.Sprintf("WATCHDOG_USEC=%d", patience.Microseconds())
		}
		if err == nil {
			message = manager.Alive + "\n" + message
		}
		if message != "" {
			send(message)
		}
	}
}

// pace decides from how late a process runs how long systemd should wait for it.
type pace struct {
	usual, every time.Duration // systemd's patience by the unit, and how often the process reports
	last         time.Time
	late         time.Time // when it was last late; zero when it never was
	patient      bool
}

const (
	reports = 4               // in the watchdog's period
	more    = 6               // by how much systemd is asked to be more patient
	calm    = 2 * time.Minute // without lateness, before it is no more
)

func newPace(period time.Duration, now time.Time) *pace {
	return &pace{usual: period, every: period / reports, last: now}
}

// at takes in that the process has come to a report, and returns how patient systemd should be from now on and whether
// that is new. A process that wants CPU comes late, at first by little.
func (p *pace) at(now time.Time) (patience time.Duration, changed bool) {
	if late := now.Sub(p.last) - p.every; late > p.every/10 {
		p.late = now
	}
	p.last = now
	was := p.patient
	p.patient = !p.late.IsZero() && now.Sub(p.late) < calm
	if p.patient {
		return more * p.usual, !was
	}
	return p.usual, was
}
