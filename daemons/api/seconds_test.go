package api

import (
	"math"
	"testing"
	"time"
)

func TestSecondsKeepTheirSign(t *testing.T) {
	const century = 100 * 366 * 24 * time.Hour
	for n, want := range map[int64]time.Duration{
		0: 0, 30: 30 * time.Second, -30: -30 * time.Second,
		math.MaxInt32: math.MaxInt32 * time.Second,
		math.MaxInt64: century, math.MinInt64: -century, math.MaxInt64 / int64(time.Second) * 3: century,
	} {
		if got := Seconds(n); got != want {
			t.Errorf("%d seconds are %s, want %s", n, got, want)
		}
	}
}
