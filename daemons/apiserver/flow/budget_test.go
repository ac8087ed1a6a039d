package flow

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"clusterctl/daemons/api"
)

func schemaOf(level string, share float64) *Schema {
	return &Schema{Name: level, level: newLevel(level), share: share, method: "ByUser"}
}

func newLevel(name string) *level { return &level{name: name} }

// acquireInBackground calls Acquire in the background and returns once the request waits or has its share. The channel
// receives the share.
func acquireInBackground(t *testing.T, b *Budget, s *Schema, user string, n int64) chan *Share {
	t.Helper()
	got, before := make(chan *Share, 1), countWaiting(b)
	go func() {
		share, err := b.Acquire(t.Context(), s, &api.User{Name: user}, &api.Request{}, n)
		if err == nil {
			got <- share
		}
	}()
	for countWaiting(b) == before && len(got) == 0 {
		runtime.Gosched()
	}
	return got
}

func countWaiting(b *Budget) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.levels {
		for _, q := range l.flows {
			n += len(q.list)
		}
	}
	return n
}

// TestOneFlowDelaysNoOther fills the budget with requests of one service account and then sends requests of other
// flows.
// Proves S12.
func TestOneFlowDelaysNoOther(t *testing.T) {
	b := NewBudget(100, 25)
	low, high := schemaOf("workload-low", 100), schemaOf("global-default", 20)
	var mine []chan *Share
	for range 5 {
		mine = append(mine, acquireInBackground(t, b, low, "pod", 100))
	}
	first := <-mine[0]
	if len(mine[1]) > 0 {
		t.Fatal("the budget was given twice")
	}
	// Another level gets the reserve at once, even when the budget is used up.
	small := <-acquireInBackground(t, b, high, "jane", 20)
	// Large requests of another level and of another flow come next, before the remaining requests of the pod.
	large, other := acquireInBackground(t, b, high, "jane", 90), acquireInBackground(t, b, low, "other", 100)
	small.Release()
	first.Release()
	second := <-large
	second.Release()
	for _, want := range []chan *Share{mine[1], other, mine[2], mine[3], mine[4]} {
		share := <-want
		share.Release()
	}
	if b.free != 100 || b.reserve != 25 || countWaiting(b) != 0 {
		t.Errorf("after all releases, free is %d, reserve is %d, and %d requests "+
			"wait", b.free, b.reserve, countWaiting(b))
	}
}

// TestCancelledRequestsTakeNothing cancels a waiting request.
func TestCancelledRequestsTakeNothing(t *testing.T) {
	b, s := NewBudget(10, 0), schemaOf("a", 1)
	held, err := b.Acquire(t.Context(), s, &api.User{}, &api.Request{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, s, &api.User{}, &api.Request{}, 5)
		done <- err
	}()
	for countWaiting(b) == 0 {
		runtime.Gosched()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || countWaiting(b) != 0 {
		t.Errorf("canceled request: %v, %d requests wait", err, countWaiting(b))
	}
	held.Release()
	if b.free != 10 {
		t.Errorf("free is %d, want 10", b.free)
	}
}

// TestABudgetIsNeverOverspent runs many requests of different levels and sizes, and waits for all of them.
func TestABudgetIsNeverOverspent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const capacity, reserve = 50, 10
		b := NewBudget(capacity, reserve)
		schemas := []*Schema{schemaOf("a", 100), schemaOf("b", 10), schemaOf("c", exemptShare), nil}
		sizes := rapid.SliceOfN(rapid.Int64Range(1, capacity), 1, 40).Draw(t, "sizes")
		var mu sync.Mutex
		var all sync.WaitGroup
		held := int64(0)
		for i, n := range sizes {
			all.Go(func() {
				share, err := b.Acquire(context.Background(), schemas[i%len(schemas)],
					&api.User{Name: string(rune('a' + i%3))}, &api.Request{}, n)
				if err != nil {
					t.Errorf("%v", err)
					return
				}
				mu.Lock()
				if held += n; held > capacity+reserve {
					t.Errorf("requests hold %d, more than the budget", held)
				}
				mu.Unlock()
				mu.Lock()
				held -= n
				mu.Unlock()
				share.Release()
			})
		}
		all.Wait()
		if b.free != capacity || b.reserve != reserve {
			t.Errorf("after all releases, free is %d and reserve is %d", b.free, b.reserve)
		}
	})
}
