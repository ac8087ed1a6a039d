package pod

import "time"

// Back-off of restarts and of image pulls: upstream's figures.
const (
	FirstDelay = 10 * time.Second
	MaxDelay   = 5 * time.Minute
	forgetAge  = 2 * MaxDelay
)

// Backoff is the delay before the next try of something that keeps failing. The
// zero value delays nothing.
type Backoff struct {
	Delay   time.Duration
	Updated time.Time
}

// Next returns the back-off after one more try at now. What has been left alone
// for ten minutes starts afresh.
func (b Backoff) Next(now time.Time) Backoff {
	if b.Delay == 0 || now.Sub(b.Updated) > forgetAge {
		return Backoff{Delay: FirstDelay, Updated: now}
	}
	return Backoff{Delay: min(2*b.Delay, MaxDelay), Updated: now}
}

// Until returns when something that ended at a time may be tried again.
func (b Backoff) Until(ended, now time.Time) time.Time {
	if b.Delay == 0 || now.Sub(b.Updated) > forgetAge {
		return ended
	}
	return ended.Add(b.Delay)
}
