package metrics

import (
	"math"
	"time"
)

// Point is the usage at one time.
type Point struct {
	At      time.Time
	CPU     time.Duration // CPU time used since Started
	Memory  int64         // working set, bytes
	Started time.Time     // zero if unknown
}

// Pair holds the newest point and an earlier one, from which the rate is computed. Before is zero if there is none.
type Pair struct{ Last, Before Point }

// minRateAge is the minimum age at which a rate is computed from the start of a container, as in upstream: the usage of
// the first moments is not representative.
const minRateAge = 10 * time.Second

// Next returns the pair after a newer point. A rate is never computed across a restart, since it would be negative or
// mix two processes. interval is the time between points.
func (p Pair) Next(now Point, interval time.Duration) Pair {
	next := Pair{Last: now}
	age := now.At.Sub(now.Started)
	same := !p.Last.At.IsZero() && now.CPU >= p.Last.CPU && !now.Started.After(p.Last.At)
	switch {
	case same && now.At.After(p.Last.At):
		next.Before = p.Last
	case same && now.At.After(p.Before.At): // the same point again
		next.Before = p.Before
	case !same && !now.Started.IsZero() && age >= min(minRateAge, interval) && age < 2*interval:
		next.Before = Point{At: now.Started, Started: now.Started}
	}
	return next
}

// Usage is the average CPU usage over the window that ends at At, and the memory usage at that time.
type Usage struct {
	At       time.Time
	Window   time.Duration
	NanoCPUs int64 // nanocores
	Memory   int64 // bytes
}

// Usage returns the usage. It returns false if there are no two points yet.
func (p Pair) Usage() (Usage, bool) {
	window := p.Last.At.Sub(p.Before.At)
	if p.Before.At.IsZero() || window <= 0 || p.Last.CPU < p.Before.CPU {
		return Usage{}, false
	}
	rate := float64(p.Last.CPU-p.Before.CPU) / window.Seconds()
	if rate >= math.MaxInt64 {
		return Usage{}, false
	}
	return Usage{At: p.Last.At, Window: window, NanoCPUs: int64(rate), Memory: p.Last.Memory}, true
}
