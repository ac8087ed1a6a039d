package housekeeping

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/kubelet/machine"
	"clusterctl/daemons/kubelet/nodeagent"
)

func TestTheNextPodIsEvictedWhenFreeSpaceStopsGrowing(t *testing.T) {
	at := func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }
	var r reclaimState
	if r.needsWait(false, 10, at(0)) {
		t.Error("it is waited although no pod was evicted")
	}
	for _, row := range []struct {
		isGone bool
		room   int64
		at     time.Duration
		waits  bool
	}{
		{true, 10, 0, true}, {false, 10, 29 * time.Second, true}, {false, 11, 29 * time.Second, true},
		{false, 9, 58 * time.Second, true},
		{false, 9, time.Minute, false}, {true, 9, 2 * time.Minute, true}, {false, 9, 3 * time.Minute, false},
	} {
		if got := r.needsWait(row.isGone, row.room, at(row.at)); got != row.waits {
			t.Errorf("after %s with %d: it is waited: %t", row.at, row.room, got)
		}
	}
	r.needsWait(true, 0, at(0))
	for d := time.Duration(0); d < maxFreeTimeout; d += 10 * time.Second {
		if !r.needsWait(false, int64(d), at(d)) {
			t.Errorf("after %s it is not waited while there is more and more room", d)
		}
	}
	if r.needsWait(false, 1<<62, at(maxFreeTimeout)) {
		t.Error("it is waited for ever")
	}
}

// fullMachine is a machine with a disk of a fixed size.
type fullMachine struct{}

func (fullMachine) Disk() (machine.Disk, error) {
	return machine.Disk{Available: 1, Capacity: 100 << 30}, nil
}

// noPods is a node without pods.
type noPods struct{ Pods }

func (noPods) Snapshot() []Pod { return nil }

// The kernel kills processes when memory is short, even while the disk is being freed.
func TestMemoryEvictionDoesNotWaitForTheDisk(t *testing.T) {
	now := time.Now()
	e := &Evictor{Pods: noPods{}, Machine: fullMachine{},
		reclaiming: reclaimState{start: now, grewAt: now, maxFree: 1 << 62}}
	if !e.isReclaiming(nodeagent.Pressures{Disk: true}, now) {
		t.Error("a pod is evicted while the disk is being freed")
	}
	if e.isReclaiming(nodeagent.Pressures{Disk: true, Memory: true}, now) {
		t.Error("no pod is evicted for memory while the disk is being freed")
	}
}

// Without process IDs, the pod with the lowest priority goes, and among equals the one with the most processes. Memory
// does not count.
// Proves S02, S26.
func TestTheOrderOfEvictionsForProcessIDs(t *testing.T) {
	low, high := int32(-5), int32(5)
	for name, c := range map[string]struct {
		priorities [2]*int32
		used       [2]int64
		want       int
	}{
		"the lower priority": {[2]*int32{&high, &low}, [2]int64{900, 1}, 1},
		"more processes":     {[2]*int32{nil, nil}, [2]int64{3, 40}, 1},
		"no counts":          {[2]*int32{&low, &high}, [2]int64{}, 0},
	} {
		var ranked []evictionCandidate
		for i := range 2 {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
			p.Spec.Priority = c.priorities[i]
			ranked = append(ranked, newCandidate(p, processIDs, c.used[i]))
		}
		if got := slices.MinFunc(ranked, evictionOrder).pod.Name; got != fmt.Sprint("p", c.want) {
			t.Errorf("%s: %s goes", name, got)
		}
	}
}
