package loop

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"
)

// startLoop runs a loop until the test ends. It returns the keys that are synced.
func startLoop(t *testing.T, l *Loop, sync func(key string) error) <-chan string {
	t.Helper()
	synced := make(chan string, 100)
	l.Sync = func(_ context.Context, key string) error {
		synced <- key
		return sync(key)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return synced
}

// advanceUntilSync advances the clock until a key is synced, and returns by how much.
func advanceUntilSync(t *testing.T, clock *clocktesting.FakeClock, synced <-chan string,
	step time.Duration) (moved time.Duration) {
	t.Helper()
	for deadline := time.After(30 * time.Second); ; {
		select {
		case <-synced:
			return moved
		case <-deadline:
			t.Fatalf("nothing was synced in %s of the clock", moved)
		case <-time.After(5 * time.Millisecond):
			clock.Step(step)
			moved += step
		}
	}
}

func TestDelaysUseTheConfiguredClock(t *testing.T) {
	for name, c := range map[string]struct {
		put  func(l *Loop)
		sync func(tries int) error
		wait time.Duration
	}{
		"a key for later": {func(l *Loop) { l.AddAfter("k", time.Hour) }, func(int) error { return nil }, time.Hour},
		"a tenth new try": {func(l *Loop) { l.Queue().Add("k") }, func(tries int) error {
			if tries < 11 {
				return errors.New("not yet")
			}
			return nil
		}, 5 * time.Millisecond << 9},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
			l := &Loop{Name: "test", Workers: 1, Context: Context{Log: slog.New(slog.DiscardHandler), Clock: clock}}
			tries := 0
			synced := startLoop(t, l, func(string) error { tries++; return c.sync(tries) })
			c.put(l)
			var moved time.Duration
			if name == "a key for later" {
				moved = advanceUntilSync(t, clock, synced, time.Minute)
			} else {
				for range 11 {
					moved = advanceUntilSync(t, clock, synced, 100*time.Millisecond)
				}
			}
			if moved < c.wait {
				t.Errorf("it was taken up after %s of the clock, want %s", moved, c.wait)
			}
		})
	}
}

func TestQueueMetricsHaveUpstreamsNames(t *testing.T) {
	registry := prometheus.NewRegistry()
	queues, err := CountQueues(registry)
	if err != nil {
		t.Fatal(err)
	}
	l := &Loop{
		Name:            "endpointslice",
		QueueMetricName: "endpoint_slice",
		Workers:         1,
		Context:         Context{Log: slog.New(slog.DiscardHandler), Queues: queues},
	}
	tries := 0
	synced := startLoop(t, l, func(string) error {
		if tries++; tries == 1 {
			return errors.New("not yet")
		}
		return nil
	})
	l.Queue().Add("a/b")
	<-synced
	<-synced
	want := `
# HELP workqueue_adds_total Keys put into a queue.
# TYPE workqueue_adds_total counter
workqueue_adds_total{name="endpoint_slice"} 2
# HELP workqueue_retries_total Keys to be taken up again later, after a failure or at their time.
# TYPE workqueue_retries_total counter
workqueue_retries_total{name="endpoint_slice"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "workqueue_adds_total",
		"workqueue_retries_total"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"workqueue_depth", "workqueue_queue_duration_seconds",
		"workqueue_work_duration_seconds",
		"workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds"} {
		if n, err := testutil.GatherAndCount(registry, name); err != nil || n != 1 {
			t.Errorf("%s: %d series, %v; want the one of the queue", name, n, err)
		}
	}
}
