package proxy

import (
	"context"
	"time"

	"clusterctl/daemons/ingress/route"
)

// errTotal is the error of a request that exceeds its rule's total timeout.
var errTotal = &malformed{504, "the request took longer than its rule lets it"}

// within returns a context that ends after the rule's total timeout.
func within(ctx context.Context, rule *route.Rule) (context.Context, context.CancelFunc) {
	if rule.Policy.Total == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, rule.Policy.Total, errTotal)
}

// atMost returns a time of the clock, limited by the request's deadline.
func (c *conn) atMost(until int64) int64 {
	if c.until > 0 {
		return min(until, c.until)
	}
	return until
}

// wait sets the deadline of the next read of a response. between limits the time between two reads. until is a time of
// the clock, or 0 for no limit.
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
