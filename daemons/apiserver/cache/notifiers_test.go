package cache

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Many subscribers are notified at once of the first event, and once of the events that soon follow. A few subscribers
// are notified of each event.
// Proves S4.
func TestManySubscribersAreNotifiedInBatches(t *testing.T) {
	for _, c := range []struct {
		name      string
		listeners int
		events    []time.Duration // when the events are appended
		calls     []time.Duration
	}{
		{"a few are called for each", batchThreshold, []time.Duration{0, 1, 2}, []time.Duration{0, 1, 2}},
		{"a crowd is called at once after a rest", batchThreshold + 1,
			[]time.Duration{0, batchInterval, 3 * batchInterval},
			[]time.Duration{0, batchInterval, 3 * batchInterval}},
		{"what comes closely waits for more, a moment at most", batchThreshold + 1,
			[]time.Duration{0, 1, 2, batchInterval},
			[]time.Duration{0, batchInterval + 1}},
		{"a call that was late is no rest", batchThreshold + 1, []time.Duration{0, 1, batchInterval + 2},
			[]time.Duration{0, batchInterval + 1, 2*batchInterval + 2}},
		{"twenty events a second go two by two", batchThreshold + 1, repeatedTimes(50*time.Millisecond, 7),
			[]time.Duration{0, 50*time.Millisecond + batchInterval, 150*time.Millisecond + batchInterval,
				250*time.Millisecond +
					batchInterval}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, start := newEventLog(0), time.Now()
				var calls []time.Duration
				heard := make([]int, c.listeners)
				for i := range c.listeners {
					cursor := &Cursor{log: l}
					notifier := cursor.NewNotifier(func() {
						events, _, err := cursor.Next()
						if heard[i] += len(events); err != nil {
							t.Errorf("reading the log: %v", err)
						}
						if i == 0 && len(events) > 0 {
							calls = append(calls, time.Since(start))
						}
					})
					notifier.Subscribe()
					defer notifier.Unsubscribe()
				}
				for i, at := range c.events {
					<-time.After(at - time.Since(start)) // in the fake time of the test
					l.append([]*Event{{Revision: int64(i + 1)}}, maxLogBytes, 0)
				}
				<-time.After(time.Minute)
				synctest.Wait()
				if !slices.Equal(calls, c.calls) {
					t.Errorf("called at %v, want %v", calls, c.calls)
				}
				for i, n := range heard {
					if n != len(c.events) {
						t.Errorf("listener %d has heard of %d events, want %d", i, n, len(c.events))
					}
				}
			})
		})
	}
}

func repeatedTimes(apart time.Duration, times int) (at []time.Duration) {
	for i := range times {
		at = append(at, time.Duration(i)*apart)
	}
	return at
}

// The end of a log calls at once, even a crowd with a delayed call.
func TestEndOfLogNotifiesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ended := newEventLog(0), 0
		for range batchThreshold + 1 {
			cursor := &Cursor{log: l}
			cursor.NewNotifier(func() {
				events, _, err := cursor.Next()
				for err == nil && len(events) > 0 {
					events, _, err = cursor.Next()
				}
				if err != nil {
					ended++
				}
			}).Subscribe()
		}
		l.append([]*Event{{Revision: 1}}, maxLogBytes, 0)
		l.append([]*Event{{Revision: 2}}, maxLogBytes, 0)
		l.end()
		if ended != batchThreshold+1 {
			t.Errorf("%d of %d have heard of the end", ended, batchThreshold+1)
		}
	})
}

// BenchmarkNotify measures calls of a thousand subscribers.
func BenchmarkNotify(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := newEventLog(0)
			for range n {
				cursor := &Cursor{log: l}
				cursor.NewNotifier(func() { _, _, _ = cursor.Next() }).Subscribe()
			}
			event := []*Event{{Revision: 1}}
			for b.Loop() {
				l.append(event, maxLogBytes, 0)
			}
		})
	}
}
