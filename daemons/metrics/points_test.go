package metrics

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const interval = 15 * time.Second

func pointAt(seconds float64) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func point(seconds, cpu float64) Point {
	return Point{At: pointAt(seconds), CPU: time.Duration(cpu * 1e9), Memory: 1 << 20, Started: pointAt(-1000)}
}

// withStart returns a point of a container with a start time.
func withStart(p Point, seconds float64) Point {
	p.Started = pointAt(seconds)
	return p
}

func TestRatesNeedTwoPointsOfOneStart(t *testing.T) {
	unknown := func(p Point) Point { p.Started = time.Time{}; return p }
	for name, c := range map[string]struct {
		points []Point
		cores  float64 // negative means unknown
		window time.Duration
	}{
		"one point":                          {[]Point{point(0, 1)}, -1, 0},
		"two points":                         {[]Point{point(0, 1), point(10, 6)}, .5, 10 * time.Second},
		"the newest two of three":            {[]Point{point(0, 1), point(10, 6), point(20, 7)}, .1, 10 * time.Second},
		"idle":                               {[]Point{point(0, 1), point(10, 1)}, 0, 10 * time.Second},
		"the same point again":               {[]Point{point(0, 1), point(10, 6), point(10, 6)}, .5, 10 * time.Second},
		"the first point again":              {[]Point{point(0, 1), point(0, 1)}, -1, 0},
		"a clock that went back":             {[]Point{point(0, 1), point(10, 6), point(-5, 7)}, -1, 0},
		"a counter that went back":           {[]Point{point(0, 9), point(10, 1)}, -1, 0},
		"a restart":                          {[]Point{point(0, 1), withStart(point(15, 2), 14)}, -1, 0},
		"a restart some time ago":            {[]Point{point(0, 1), withStart(point(15, 2), 5)}, .2, 10 * time.Second},
		"a restart whose counter is greater": {[]Point{point(0, 1), withStart(point(15, 9), 14)}, -1, 0},
		"a new container":                    {[]Point{withStart(point(15, 6), 3)}, .5, 12 * time.Second},
		"a container that is new to us only": {[]Point{withStart(point(0, 6), -100)}, -1, 0},
		"a start that nobody knows": {[]Point{unknown(point(0, 1)), unknown(point(10, 6))}, .5,
			10 * time.Second},
		"a start in the future": {[]Point{withStart(point(0, 1), 100), withStart(point(10, 2), 100)}, -1, 0},
	} {
		var p Pair
		for _, now := range c.points {
			p = p.Next(now, interval)
		}
		u, ok := p.Usage()
		if ok != (c.cores >= 0) ||
			ok && (u.NanoCPUs != int64(c.cores*1e9) || u.Window != c.window || u.Memory != 1<<20) {
			t.Errorf("%s: %+v, %v; want %v over %v", name, u, ok, c.cores, c.window)
		}
	}
}

func TestRatesAreNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pair
		for range rapid.IntRange(1, 6).Draw(t, "points") {
			p = p.Next(withStart(point(rapid.Float64Range(-50, 50).Draw(t, "at"),
				rapid.Float64Range(0, 100).Draw(t, "cpu")), rapid.Float64Range(-100, 100).Draw(t, "started")), interval)
			if u, ok := p.Usage(); ok && (u.NanoCPUs < 0 || u.Window <= 0) {
				t.Fatalf("%+v of %+v", u, p)
			}
		}
	})
}
