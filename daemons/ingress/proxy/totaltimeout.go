package proxy

import (
	"context"
	"time"

	"clusterctl/daemons/ingress/route"
)

// errTotalTimeout is the error of a request that exceeds its rule's total timeout.
var errTotalTimeout = &statusError{504, "the request took longer than its rule lets it"}

// withTotalTimeout returns a context that ends after the rule's total timeout.
func withTotalTimeout(ctx context.Context, rule *route.Rule) (context.Context, context.CancelFunc) {
	if rule.Policy.Total == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, rule.Policy.Total, errTotalTimeout)
}

// limitDeadline returns a time of the clock, limited by the request's deadline.
func (c *conn) limitDeadline(until int64) int64 {
	if c.ruleDeadline > 0 {
		return min(until, c.ruleDeadline)
	}
	return until
}

// setReadDeadline sets the deadline of the next read of a response. between limits the time between two reads. until is
// a time of the clock, or 0 for no limit.
func (u *upstream) setReadDeadline(e *Engine, between time.Duration, until int64) {
	now := e.clock()
	if until > 0 {
		if u.readDeadline.set(min(until, now+int64(between))) {
			_ = u.nc.SetReadDeadline(e.timeAt(u.readDeadline.at))
		}
		return
	}
	if u.readDeadline.extend(now, between) {
		_ = u.nc.SetReadDeadline(e.timeAt(u.readDeadline.at))
	}
}
