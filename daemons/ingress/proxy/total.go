package proxy

import (
	"context"
	"time"

	"clusterctl/daemons/ingress/route"
)

// errTotal ends a request that takes longer than its rule lets it.
var errTotal = &malformed{504, "the request took longer than its rule lets it"}

// within bounds a request by its rule.
func within(ctx context.Context, rule *route.Rule) (context.Context, context.CancelFunc) {
	if rule.Policy.Total == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, rule.Policy.Total, errTotal)
}

// atMost is a time of the clock, or the end of what the request may take.
func (c *conn) atMost(until int64) int64 {
	if c.until > 0 {
		return min(until, c.until)
	}
	return until
}

// wait sets how long the next read of an answer may take: the time between two reads, and not longer than until unless
// that is 0.
func (u *upstream) wait(e *Engine, between time.Duration, until int64) {
	now := e.clock()
	if until > 0 {
		if u.reading.exact(min(until, now+int64(between))) {
			_ = u.nc.SetReadDeadline(e.at(u.reading.at))
		}
		return
	}
	if u.reading.extend(now, between) {
		_ = u.nc.SetReadDeadline(e.at(u.reading.at))
	}
}
