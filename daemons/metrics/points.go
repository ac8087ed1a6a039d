package metrics

import (
	"math"
	"time"
)

// Point is what something has used at one time.
type Point struct {
	At      time.Time
	CPU     time.Duration // of one core, since Started
	Memory  int64         // working set, bytes
	Started time.Time     // zero where it is not known
}

// Pair is the newest point, and the one before it that its rate is from. Before is zero as long as there is none.
type Pair struct{ Last, Before Point }

// fresh is how old something is at least whose rate is taken from its start, as upstream has it: in its first moments a
// container does what it never does again.
const fresh = 10 * time.Second

// Next returns the pair that follows when a newer point comes, where points are had every interval. A rate is never
// taken over a restart: it would be below zero, or of two processes.
func (p Pair) Next(now Point, interval time.Duration) Pair {
	next := Pair{Last: now}
	age := now.At.Sub(now.Started)
	same := !p.Last.At.IsZero() && now.CPU >= p.Last.CPU && !now.Started.After(p.Last.At)
	switch {
	case same && now.At.After(p.Last.At):
		next.Before = p.Last
	case same && now.At.After(p.Before.At): // the same point once more
		next.Before = p.Before
	case !same && !now.Started.IsZero() && age >= min(fresh, interval) && age < 2*interval:
		next.Before = Point{At: now.Started, Started: now.Started}
	}
	return next
}

// Use is what something uses: of CPU on average over the window that ends at a time, of memory then.
type Use struct {
	At       time.Time
	Window   time.Duration
	NanoCPUs int64 // billionths of a core
	Memory   int64 // bytes
}

// Use returns false as long as there are not two points to tell it from.
func (p Pair) Use() (Use, bool) {
	window := p.Last.At.Sub(p.Before.At)
	if p.Before.At.IsZero() || window <= 0 || p.Last.CPU < p.Before.CPU {
		return Use{}, false
	}
	rate := float64(p.Last.CPU-p.Before.CPU) / window.Seconds()
	if rate >= math.MaxInt64 {
		return Use{}, false
	}
	return Use{At: p.Last.At, Window: window, NanoCPUs: int64(rate), Memory: p.Last.Memory}, true
}
