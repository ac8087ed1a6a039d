package plugin

import (
	"testing"
	"time"
)

func TestTheSearchForDevicesHasATimeLimit(t *testing.T) {
	start := time.Unix(1e9, 0)
	for _, c := range []struct {
		limit, passed time.Duration
		want          bool
	}{{time.Second, 0, false}, {time.Second, time.Second, false}, {time.Second, time.Second + 1, true},
		{0, time.Hour, false}} {
		now := start
		isLate := startTimeLimit(c.limit, func() time.Time { return now })
		now = now.Add(c.passed)
		if got := isLate(); got != c.want {
			t.Errorf("of %v %v have passed: late is %v", c.limit, c.passed, got)
		}
	}
}
