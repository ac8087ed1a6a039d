package faults

import (
	"time"

	"k8s.io/utils/clock"
)

// fast is a clock that runs several times faster than real time.
type fast struct {
	began time.Time
	times int64
}

func (c fast) Now() time.Time {
	return c.began.Add(time.Since(c.began) * time.Duration(c.times))
}

func (c fast) Since(t time.Time) time.Duration        { return c.Now().Sub(t) }
func (c fast) real(d time.Duration) time.Duration     { return max(d/time.Duration(c.times), 1) }
func (c fast) After(d time.Duration) <-chan time.Time { return time.After(c.real(d)) }
func (c fast) Sleep(d time.Duration)                  { <-c.After(d) }
func (c fast) Tick(d time.Duration) <-chan time.Time  { return time.Tick(c.real(d)) }
func (c fast) NewTimer(d time.Duration) clock.Timer   { return timer{time.NewTimer(c.real(d)), c} }
func (c fast) NewTicker(d time.Duration) clock.Ticker { return ticker{time.NewTicker(c.real(d))} }

type timer struct {
	*time.Timer
	clock fast
}

func (t timer) C() <-chan time.Time        { return t.Timer.C }
func (t timer) Reset(d time.Duration) bool { return t.Timer.Reset(t.clock.real(d)) }

type ticker struct{ *time.Ticker }

func (t ticker) C() <-chan time.Time { return t.Ticker.C }
