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

func (c *clock) advance(d time.Duration) { c.at = c.at.Add(d) }

func newClock() *clock { return &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func newTestQueue() (*queue, *clock) {
	c := newClock()
	return newQueue(c.now, profile.DefaultSettings()), c
}

func popName(t *testing.T, q *queue) string {
	t.Helper()
	it, ok := q.pop()
	if !ok {
		return ""
	}
	return it.pod.Name
}

var insufficientResources = &refusal{"no room", []string{"NodeResourcesFit"}}

func TestPodsAreOrderedByPriorityThenAge(t *testing.T) {
	q, c := newTestQueue()
	for _, p := range []*corev1.Pod{pod("old"), pod("other", withRequest("cpu", "1")), pod("high", priority(9)),
		pod("young")} {
		q.addOrUpdate(convertPod(p))
		c.advance(time.Second)
	}
	for _, want := range []string{"high", "old", "other", "young", ""} {
		if got := popName(t, q); got != want {
			t.Errorf("popped %q, want %q", got, want)
		}
	}
}

func TestRefusedPodsWaitForARelevantEvent(t *testing.T) {
	q, c := newTestQueue()
	q.addOrUpdate(convertPod(pod("p")))
	it, _ := q.pop()
	q.refuse(it, plugin.PodGone, insufficientResources)
	c.advance(time.Minute)
	if got := popName(t, q); got != "" {
		t.Fatalf("%q came back without a change", got)
	}
	q.activateHelped(plugin.ClusterEvent{EventKind: plugin.StorageChanged}, nil)
	q.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone}, func(*cluster.Pod, []string) bool { return false })
	if got := popName(t, q); got != "" {
		t.Fatalf("%q came back for a change that is not its concern", got)
	}
	q.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone}, nil)
	if got := popName(t, q); got != "p" {
		t.Fatalf("popped %q after the change", got)
	}
}

// If one of several equal pods is refused, all are, and an event is checked once for all of them.
func TestEqualPodsAreRefusedTogether(t *testing.T) {
	q, c := newTestQueue()
	for i := range 3 {
		q.addOrUpdate(convertPod(pod(fmt.Sprintf("p%d", i))))
	}
	q.addOrUpdate(convertPod(pod("other", withRequest("cpu", "1"))))
	it, _ := q.pop()
	if reported := q.refuse(it, plugin.PodGone, insufficientResources); len(reported) != 3 {
		t.Fatalf("%d pods are reported", len(reported))
	}
	if got := popName(t, q); got != "other" {
		t.Fatalf("popped %q", got)
	}
	if _, reported := q.addOrUpdate(convertPod(pod("late"))); reported != insufficientResources {
		t.Errorf("for a later pod, the report is %v", reported)
	}
	if _, reported := q.pendingRefusal(q.pods["p1"]); reported != insufficientResources {
		t.Errorf("the report on p1 is %v", reported)
	}
	looks := 0
	c.advance(time.Minute)
	q.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone},
		func(*cluster.Pod, []string) bool { looks++; return true })
	names := map[string]bool{}
	for range 4 {
		names[popName(t, q)] = true
	}
	if looks != 1 || len(names) != 4 || names[""] {
		t.Errorf("%d looks, %v came back", looks, names)
	}
}

func TestBackoffGrowsFromOneToTenSeconds(t *testing.T) {
	q, c := newTestQueue()
	q.addOrUpdate(convertPod(pod("p")))
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		it, ok := q.pop()
		if !ok {
			t.Fatal("nothing to pop")
		}
		q.retry(it)
		if _, early := q.pop(); early {
			t.Fatal("popped before its back-off was over")
		}
		if got := q.untilNext(); got != want*time.Second {
			t.Errorf("waits %v, want %v", got, want*time.Second)
		}
		c.advance(want * time.Second)
	}
}

func TestRemovedPodsAreNotRequeued(t *testing.T) {
	q, c := newTestQueue()
	p := convertPod(pod("p"))
	q.addOrUpdate(p)
	it, _ := q.pop()
	q.remove(p.UID)
	q.retry(it)
	c.advance(time.Minute)
	if got := popName(t, q); got != "" || len(q.classes) != 0 {
		t.Errorf("%q came back, %d classes are left", got, len(q.classes))
	}
}

func TestParkedPodsAreRetriedAfterFiveMinutes(t *testing.T) {
	q, c := newTestQueue()
	q.addOrUpdate(convertPod(pod("p")))
	it, _ := q.pop()
	q.refuse(it, plugin.NodeChanged, insufficientResources)
	c.advance(parkedLimit - time.Second)
	q.activateStale()
	if got := popName(t, q); got != "" {
		t.Fatalf("%q came back early", got)
	}
	c.advance(2 * time.Second)
	q.activateStale()
	if got := popName(t, q); got != "p" {
		t.Errorf("popped %q", got)
	}
}

// A nominated pod waits in a class of its own, even if the API delivers an older state of it.
func TestNominatedPodsHaveTheirOwnClass(t *testing.T) {
	q, c := newTestQueue()
	q.addOrUpdate(convertPod(pod("a")))
	q.addOrUpdate(convertPod(pod("b")))
	it, _ := q.pop()
	promised := *it.pod
	promised.Nominated = "n1"
	q.nominate(it, &promised)
	if reported := q.refuse(it, plugin.PodGone, insufficientResources); len(reported) != 1 {
		t.Fatalf("%d pods are reported", len(reported))
	}
	q.addOrUpdate(convertPod(pod("a")))
	if got := q.pods["a"].pod.Nominated; got != "n1" {
		t.Errorf("the promise is %q", got)
	}
	if got := popName(t, q); got != "b" {
		t.Errorf("popped %q", got)
	}
	c.advance(time.Minute)
	q.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone}, nil)
	if got := popName(t, q); got != "a" {
		t.Errorf("popped %q", got)
	}
}

// The back-off lets other pods go first. If there are none, a pod that an event may have helped is tried at once.
func TestRequeuedPodsSkipBackoffWhenNoOtherPodWaits(t *testing.T) {
	q, _ := newTestQueue()
	q.addOrUpdate(convertPod(pod("woken")))
	it, _ := q.pop()
	q.refuse(it, plugin.PodGone, insufficientResources)
	q.addOrUpdate(convertPod(pod("lesser", priority(-1))))
	q.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone}, nil)
	if got := q.untilNext(); got != 0 {
		t.Errorf("it sleeps for %v", got)
	}
	for _, want := range []string{"lesser", "woken", ""} {
		if got := popName(t, q); got != want {
			t.Errorf("popped %q, want %q", got, want)
		}
	}
}

func TestPodsWhoseBindingFailedWaitForTheirBackoff(t *testing.T) {
	q, c := newTestQueue()
	q.addOrUpdate(convertPod(pod("failed")))
	it, _ := q.pop()
	q.retry(it)
	q.addOrUpdate(convertPod(pod("woken", withRequest("cpu", "1"))))
	it, _ = q.pop()
	q.refuse(it, plugin.PodGone, insufficientResources)
	q.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone}, nil)
	for _, want := range []string{"woken", ""} {
		if got := popName(t, q); got != want {
			t.Errorf("popped %q, want %q", got, want)
		}
	}
	if _, backoff, _, _ := q.lengths(); backoff != 1 {
		t.Errorf("%d pods back off", backoff)
	}
	c.advance(time.Second)
	if got := popName(t, q); got != "failed" {
		t.Errorf("popped %q after its back-off", got)
	}
}

// If a pod were tried again before its victims are being deleted, it would select others.
func TestPreemptorsWaitWhileTheirVictimsAreDeleted(t *testing.T) {
	for name, c := range map[string]struct{ event, failed, back bool }{
		"nothing happened": {false, false, false}, "an event came": {true, false, true},
		"it failed": {false, true, true},
	} {
		q, _ := newTestQueue()
		q.addOrUpdate(convertPod(pod("p")))
		it, _ := q.pop()
		promised := *it.pod
		promised.Nominated = "n1"
		q.nominate(it, &promised)
		q.suspend("p")
		q.refuse(it, plugin.PodGone, insufficientResources)
		if c.event {
			q.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone}, nil)
		}
		if got := popName(t, q); got != "" {
			t.Errorf("%s: popped %q while it was held", name, got)
		}
		q.resume("p", c.failed)
		if got := popName(t, q); (got == "p") != c.back {
			t.Errorf("%s: popped %q", name, got)
		}
		q.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone}, nil)
		if got := popName(t, q); (got == "p") == c.back {
			t.Errorf("%s: popped %q after another event", name, got)
		}
	}
}
