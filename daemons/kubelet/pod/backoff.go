package pod

import "time"

// These constants are upstream's back-off of restarts and image pulls.
const (
	FirstDelay = 10 * time.Second
	MaxDelay   = 5 * time.Minute
	resetAge   = 2 * MaxDelay
)

// Backoff is the delay before the next attempt of an operation that keeps failing. The zero value is no delay.
type Backoff struct {
	Delay   time.Duration
	Updated time.Time
}

// Next returns the back-off after another attempt at now. It starts afresh after resetAge without an attempt.
func (b Backoff) Next(now time.Time) Backoff {
	if b.Delay == 0 || now.Sub(b.Updated) > resetAge {
		return Backoff{Delay: FirstDelay, Updated: now}
	}
	return Backoff{Delay: min(2*b.Delay, MaxDelay), Updated: now}
}

// Until returns when an operation that ended at a time may be tried again.
func (b Backoff) Until(ended, now time.Time) time.Time {
	if b.Delay == 0 || now.Sub(b.Updated) > resetAge {
		return ended
	}
	return ended.Add(b.Delay)
}
