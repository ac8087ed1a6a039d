package scheduler

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
	"clusterctl/daemons/scheduler/profile"
)

// clock is a clock that tests move.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }

func newClock() *clock { return &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func newTestQueue() (*queue, *clock) {
	c := newClock()
	return newQueue(c.now, profile.DefaultSettings()), c
}

func popped(t *testing.T, q *queue) string {
	t.Helper()
	it, ok := q.pop()
	if !ok {
		return ""
	}
	return it.pod.Name
}

var noRoom = &refusal{"no room", []string{"NodeResourcesFit"}}

func TestTheMostImportantPodIsFirstThenTheOldest(t *testing.T) {
	q, c := newTestQueue()
	for _, p := range []*corev1.Pod{pod("old"), pod("other", asks("cpu", "1")), pod("high", priority(9)),
		pod("young")} {
		q.put(seen(p))
		c.pass(time.Second)
	}
	for _, want := range []string{"high", "old", "other", "young", ""} {
		if got := popped(t, q); got != want {
			t.Errorf("popped %q, want %q", got, want)
		}
	}
}

func TestARefusedPodWaitsForAChangeThatMatters(t *testing.T) {
	q, c := newTestQueue()
	q.put(seen(pod("p")))
	it, _ := q.pop()
	q.refuse(it, plugin.PodGone, noRoom)
	c.pass(time.Minute)
	if got := popped(t, q); got != "" {
		t.Fatalf("%q came back without a change", got)
	}
	q.move(plugin.Happened{Event: plugin.StorageChanged}, nil)
	q.move(plugin.Happened{Event: plugin.PodGone}, func(*cluster.Pod, []string) bool { return false })
	if got := popped(t, q); got != "" {
		t.Fatalf("%q came back for a change that is not its concern", got)
	}
	q.move(plugin.Happened{Event: plugin.PodGone}, nil)
	if got := popped(t, q); got != "p" {
		t.Fatalf("popped %q after the change", got)
	}
}

// If one of several equal pods is refused, all are, and an event is checked once for all of them.
func TestEqualPodsAreRefusedTogether(t *testing.T) {
	q, c := newTestQueue()
	for i := range 3 {
		q.put(seen(pod(fmt.Sprintf("p%d", i))))
	}
	q.put(seen(pod("other", asks("cpu", "1"))))
	it, _ := q.pop()
	if told := q.refuse(it, plugin.PodGone, noRoom); len(told) != 3 {
		t.Fatalf("%d are told", len(told))
	}
	if got := popped(t, q); got != "other" {
		t.Fatalf("popped %q", got)
	}
	if _, told := q.put(seen(pod("late"))); told != noRoom {
		t.Errorf("one that comes later is told %v", told)
	}
	if _, told := q.told(q.pods["p1"]); told != noRoom {
		t.Errorf("p1 is told %v", told)
	}
	looks := 0
	c.pass(time.Minute)
	q.move(plugin.Happened{Event: plugin.PodGone}, func(*cluster.Pod, []string) bool { looks++; return true })
	names := map[string]bool{}
	for range 4 {
		names[popped(t, q)] = true
	}
	if looks != 1 || len(names) != 4 || names[""] {
		t.Errorf("%d looks, %v came back", looks, names)
	}
}

func TestBackoffGrowsFromOneToTenSeconds(t *testing.T) {
	q, c := newTestQueue()
	q.put(seen(pod("p")))
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		it, ok := q.pop()
		if !ok {
			t.Fatal("nothing to pop")
		}
		q.retry(it)
		if _, early := q.pop(); early {
			t.Fatal("popped before its back-off was over")
		}
		if got := q.wait(); got != want*time.Second {
			t.Errorf("waits %v, want %v", got, want*time.Second)
		}
		c.pass(want * time.Second)
	}
}

func TestADroppedPodDoesNotComeBack(t *testing.T) {
	q, c := newTestQueue()
	p := seen(pod("p"))
	q.put(p)
	it, _ := q.pop()
	q.drop(p.UID)
	q.retry(it)
	c.pass(time.Minute)
	if got := popped(t, q); got != "" || len(q.classes) != 0 {
		t.Errorf("%q came back, %d classes are left", got, len(q.classes))
	}
}

func TestAForgottenPodIsTriedAgainAfterFiveMinutes(t *testing.T) {
	q, c := newTestQueue()
	q.put(seen(pod("p")))
	it, _ := q.pop()
	q.refuse(it, plugin.NodeChanged, noRoom)
	c.pass(parkedLimit - time.Second)
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

// A nominated pod waits in a class of its own, even if the API delivers an older state of it.
func TestAPromisedPodWaitsAlone(t *testing.T) {
	q, c := newTestQueue()
	q.put(seen(pod("a")))
	q.put(seen(pod("b")))
	it, _ := q.pop()
	promised := *it.pod
	promised.Nominated = "n1"
	q.promise(it, &promised)
	if told := q.refuse(it, plugin.PodGone, noRoom); len(told) != 1 {
		t.Fatalf("%d are told", len(told))
	}
	q.put(seen(pod("a")))
	if got := q.pods["a"].pod.Nominated; got != "n1" {
		t.Errorf("the promise is %q", got)
	}
	if got := popped(t, q); got != "b" {
		t.Errorf("popped %q", got)
	}
	c.pass(time.Minute)
	q.move(plugin.Happened{Event: plugin.PodGone}, nil)
	if got := popped(t, q); got != "a" {
		t.Errorf("popped %q", got)
	}
}

// The back-off lets other pods go first. If there are none, a pod that an event may have helped is tried at once.
func TestAWokenPodIsTriedAtOnceWhenNobodyElseIs(t *testing.T) {
	q, _ := newTestQueue()
	q.put(seen(pod("woken")))
	it, _ := q.pop()
	q.refuse(it, plugin.PodGone, noRoom)
	q.put(seen(pod("lesser", priority(-1))))
	q.move(plugin.Happened{Event: plugin.PodGone}, nil)
	if got := q.wait(); got != 0 {
		t.Errorf("it sleeps for %v", got)
	}
	for _, want := range []string{"lesser", "woken", ""} {
		if got := popped(t, q); got != want {
			t.Errorf("popped %q, want %q", got, want)
		}
	}
}

func TestAPodWhosePlacingFailedIsNotTriedEarly(t *testing.T) {
	q, c := newTestQueue()
	q.put(seen(pod("failed")))
	it, _ := q.pop()
	q.retry(it)
	q.put(seen(pod("woken", asks("cpu", "1"))))
	it, _ = q.pop()
	q.refuse(it, plugin.PodGone, noRoom)
	q.move(plugin.Happened{Event: plugin.PodGone}, nil)
	for _, want := range []string{"woken", ""} {
		if got := popped(t, q); got != want {
			t.Errorf("popped %q, want %q", got, want)
		}
	}
	if _, backoff, _, _ := q.lengths(); backoff != 1 {
		t.Errorf("%d pods back off", backoff)
	}
	c.pass(time.Second)
	if got := popped(t, q); got != "failed" {
		t.Errorf("popped %q after its back-off", got)
	}
}

// If a pod were tried again before its victims are being deleted, it would select others.
func TestAPodIsHeldWhileItsVictimsAreEnded(t *testing.T) {
	for name, c := range map[string]struct{ event, failed, back bool }{
		"nothing happened": {false, false, false}, "an event came": {true, false, true},
		"it failed": {false, true, true},
	} {
		q, _ := newTestQueue()
		q.put(seen(pod("p")))
		it, _ := q.pop()
		promised := *it.pod
		promised.Nominated = "n1"
		q.promise(it, &promised)
		q.hold("p")
		q.refuse(it, plugin.PodGone, noRoom)
		if c.event {
			q.move(plugin.Happened{Event: plugin.PodGone}, nil)
		}
		if got := popped(t, q); got != "" {
			t.Errorf("%s: popped %q while it was held", name, got)
		}
		q.letGo("p", c.failed)
		if got := popped(t, q); (got == "p") != c.back {
			t.Errorf("%s: popped %q", name, got)
		}
		q.move(plugin.Happened{Event: plugin.PodGone}, nil)
		if got := popped(t, q); (got == "p") == c.back {
			t.Errorf("%s: popped %q after another event", name, got)
		}
	}
}
