package faults

import (
	"time"

	"k8s.io/utils/clock"
)

// fastClock is a clock that runs several times faster than real time.
type fastClock struct {
	began  time.Time
	factor int64
}

func (c fastClock) Now() time.Time {
	return c.began.Add(time.Since(c.began) * time.Duration(c.factor))
}

func (c fastClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c fastClock) realDuration(d time.Duration) time.Duration {
	return max(d/time.Duration(c.factor), 1)
}
func (c fastClock) After(d time.Duration) <-chan time.Time { return time.After(c.realDuration(d)) }
func (c fastClock) Sleep(d time.Duration)                  { <-c.After(d) }
func (c fastClock) Tick(d time.Duration) <-chan time.Time  { return time.Tick(c.realDuration(d)) }
func (c fastClock) NewTimer(d time.Duration) clock.Timer {
	return timer{time.NewTimer(c.realDuration(d)), c}
}
func (c fastClock) NewTicker(d time.Duration) clock.Ticker {
	return ticker{time.NewTicker(c.realDuration(d))}
}

type timer struct {
	*time.Timer
	clock fastClock
}

func (t timer) C() <-chan time.Time        { return t.Timer.C }
func (t timer) Reset(d time.Duration) bool { return t.Timer.Reset(t.clock.realDuration(d)) }

type ticker struct{ *time.Ticker }

func (t ticker) C() <-chan time.Time { return t.Ticker.C }
