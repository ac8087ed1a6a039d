// Package faults tests that controllers reach the same result despite faults between them and the API server. A real
// API server and all controllers run in this process. Their transport injects faults, and the leader is killed every
// few seconds. A separate watch without faults checks that no bound is violated in between.
package faults

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// killEvery is how long a leader lives.
const killEvery = 2 * time.Second

// SEED repeats a run's faults, as far as the order of requests is the same. ROUNDS adds runs with other seeds.
// Proves S18.
func TestControllersReachTheSameStateDespiteFaults(t *testing.T) {
	seed, rounds := rand.Uint64N(1e6), 1
	if s := os.Getenv("SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	if s := os.Getenv("ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	undisturbed := finalStates(t, "undisturbed", &faults{}, 0)
	for round := range rounds {
		f := &faults{random: seededRandom(seed + uint64(round))}
		t.Logf("SEED=%d", seed+uint64(round))
		disturbed := finalStates(t, "SEED="+strconv.FormatUint(seed+uint64(round), 10), f, killEvery)
		t.Log(f.counts.String())
		for name, want := range undisturbed {
			if got := disturbed[name]; got != want {
				t.Errorf("%s ends otherwise:\n%s\nundisturbed:\n%s", name, got, want)
			}
		}
		c := &f.counts
		for what, n := range map[string]int64{"conflict": c.conflicts.Load(), "refusal": c.refused.Load(),
			"failure": c.failed.Load(), "lost answer": c.lost.Load(),
			"delay": c.delayed.Load(), "closed watch": c.closed.Load(), "expired watch": c.expired.Load(),
			"repeated event": c.repeated.Load()} {
			if n == 0 {
				t.Errorf("there was no %s", what)
			}
		}
	}
}

// finalStates runs all behaviours in parallel in a separate cluster, and returns the final state of each.
func finalStates(t *testing.T, name string, f *faults, kill time.Duration) map[string]string {
	t.Helper()
	var mu sync.Mutex
	out := map[string]string{}
	t.Run(name, func(t *testing.T) {
		w := newWorld(t, f, fastClock{time.Now(), 10})
		w.startNodes(t)
		w.runControllers(t, kill, "-node", "-nodecidr", "-taint-eviction",
			"-horizontal-pod-autoscaler") // nodes here report neither their state nor their usage
		seen := w.startWatch(t)
		t.Run("behaviours", func(t *testing.T) {
			var all sync.WaitGroup // not t.Parallel, which only runs as many as there are cores
			defer all.Wait()
			for _, b := range controllerBehaviours {
				all.Go(func() {
					t.Run(b.name, func(t *testing.T) {
						start := time.Now()
						s := &testNamespace{world: w, namespace: b.name, seen: seen}
						s.createNamespace(t)
						if b.bound != nil {
							seen.setBound(s.namespace, b.bound())
						}
						text := b.play(t, s)
						for _, broken := range seen.firstViolations(s.namespace) {
							t.Error(broken)
						}
						t.Logf("after %s: %s", time.Since(start).Round(time.Millisecond), text)
						mu.Lock()
						defer mu.Unlock()
						out[b.name] = text
					})
				})
			}
		})
	})
	return out
}
