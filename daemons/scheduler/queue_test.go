package scheduler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/scheduler/plugin"
)

// clock is a time that tests move.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }

func newTestQueue() (*queue, *clock) {
	c := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	return newQueue(c.now), c
}

func popped(t *testing.T, q *queue) string {
	t.Helper()
	it, ok := q.pop()
	if !ok {
		return ""
	}
	return it.taken.Name
}

func TestTheMostImportantPodIsFirstThenTheOldest(t *testing.T) {
	q, c := newTestQueue()
	for _, p := range []*corev1.Pod{pod("old"), pod("high", priority(9)), pod("young")} {
		q.put(plugin.NewPod(p))
		c.pass(time.Second)
	}
	for _, want := range []string{"high", "old", "young", ""} {
		if got := popped(t, q); got != want {
			t.Errorf("popped %q, want %q", got, want)
		}
	}
}

func TestARefusedPodWaitsForAChangeThatMatters(t *testing.T) {
	q, c := newTestQueue()
	q.put(plugin.NewPod(pod("p")))
	it, _ := q.pop()
	q.park(it, []string{"NodeResourcesFit"}, false)
	c.pass(time.Minute)
	if got := popped(t, q); got != "" {
		t.Fatalf("%q came back without a change", got)
	}
	q.move(func(it *item) bool { return it.filters[0] == "VolumeBinding" })
	if got := popped(t, q); got != "" {
		t.Fatalf("%q came back for a change that is not its concern", got)
	}
	q.move(func(it *item) bool { return helped(it.filters) })
	if got := popped(t, q); got != "p" {
		t.Fatalf("popped %q after the change", got)
	}
}

func TestBackoffGrowsFromOneToTenSeconds(t *testing.T) {
	q, c := newTestQueue()
	q.put(plugin.NewPod(pod("p")))
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		it, ok := q.pop()
		if !ok {
			t.Fatal("nothing to pop")
		}
		q.park(it, nil, true)
		if _, early := q.pop(); early {
			t.Fatal("popped before its back-off was over")
		}
		if got := q.wait(); got != want*time.Second {
			t.Errorf("waits %v, want %v", got, want*time.Second)
		}
		c.pass(want * time.Second)
	}
}

func TestAChangeWhileAPodIsLookedAtIsNotLost(t *testing.T) {
	q, c := newTestQueue()
	q.put(plugin.NewPod(pod("p")))
	it, _ := q.pop()
	q.move(nil) // a node appears in between
	q.park(it, []string{"NodeResourcesFit"}, false)
	c.pass(firstBackoff)
	if got := popped(t, q); got != "p" {
		t.Errorf("popped %q: the pod waits for a change that has happened", got)
	}
}

func TestADroppedPodDoesNotComeBack(t *testing.T) {
	q, c := newTestQueue()
	p := plugin.NewPod(pod("p"))
	q.put(p)
	it, _ := q.pop()
	q.drop(p.UID)
	q.park(it, nil, true)
	c.pass(time.Minute)
	if got := popped(t, q); got != "" {
		t.Errorf("%q came back", got)
	}
}

func TestAForgottenPodIsTriedAgainAfterFiveMinutes(t *testing.T) {
	q, c := newTestQueue()
	q.put(plugin.NewPod(pod("p")))
	it, _ := q.pop()
	q.park(it, []string{"NodeAffinity"}, false)
	c.pass(unschedulableLimit - time.Second)
	q.flush()
	if got := popped(t, q); got != "" {
		t.Fatalf("%q came back early", got)
	}
	c.pass(2 * time.Second)
	q.flush()
	if got := popped(t, q); got != "p" {
		t.Errorf("popped %q", got)
	}
}
