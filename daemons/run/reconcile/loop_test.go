package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// recorder records when a loop calls its functions, as times since the start.
type recorder struct {
	start    time.Time
	synced   []time.Duration
	compared []time.Duration
	failures atomic.Int32 // how many calls of Sync still fail
	isBroken atomic.Bool
}

func (r *recorder) sync(context.Context) error {
	r.synced = append(r.synced, time.Since(r.start))
	if r.failures.Load() > 0 {
		r.failures.Add(-1)
		return errors.New("the kernel refuses")
	}
	return nil
}

func (r *recorder) isIntact(whole bool) bool {
	if whole {
		r.compared = append(r.compared, time.Since(r.start))
	}
	return !r.isBroken.Load()
}

// runLoop runs a loop for some time. meanwhile runs beside it.
func runLoop(t *testing.T, r *recorder, set func(*Loop), lasts time.Duration, meanwhile func(Signal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r.start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		l := Loop{
			Log: slog.New(slog.DiscardHandler), Action: "sync", Changes: NewSignal(), Sync: r.sync,
			CheckInterval: time.Minute,
		}
		set(&l)
		if meanwhile != nil {
			go meanwhile(l.Changes)
		}
		l.Run(ctx)
		synctest.Wait()
	})
}

func TestLoopSyncsAtOnceAndAtEachInterval(t *testing.T) {
	var r recorder
	runLoop(t, &r, func(*Loop) {}, 150*time.Second, nil)
	if want := []time.Duration{0, time.Minute, 2 * time.Minute}; !slices.Equal(r.synced, want) {
		t.Errorf("synced at %v, want %v", r.synced, want)
	}
}

func TestLoopRetriesWithLongerPausesUntilASyncSucceeds(t *testing.T) {
	var r recorder
	r.failures.Store(8)
	runLoop(t, &r, func(l *Loop) { l.CheckInterval = time.Hour }, time.Minute, func(s Signal) {
		time.Sleep(50 * time.Second)
		r.failures.Store(1)
		s.Wake()
	})
	var pauses []time.Duration
	for i, at := range r.synced[1:] {
		pauses = append(pauses, at-r.synced[i])
	}
	const ms = time.Millisecond
	want := []time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 10 * time.Second,
		10 * time.Second}
	if len(pauses) != 10 || !slices.Equal(pauses[:8], want) {
		t.Fatalf("the pauses are %v, want %v at first", pauses, want)
	}
	if pauses[9] != 200*ms {
		t.Errorf("after a success the first pause is %v, want 200ms", pauses[9])
	}
}

func TestLoopSyncsOnlyWhatIsNotIntact(t *testing.T) {
	var r recorder
	runLoop(t, &r, func(l *Loop) {
		l.CheckInterval, l.CompareInterval, l.IsIntact = 2*time.Second, 30*time.Second, r.isIntact
	}, 63*time.Second, func(Signal) {
		time.Sleep(41 * time.Second)
		r.isBroken.Store(true)
		time.Sleep(2 * time.Second)
		r.isBroken.Store(false)
	})
	if want := []time.Duration{0, 42 * time.Second}; !slices.Equal(r.synced, want) {
		t.Errorf("synced at %v, want %v", r.synced, want)
	}
	want := []time.Duration{2 * time.Second, 32 * time.Second, 62 * time.Second}
	if !slices.Equal(r.compared, want) {
		t.Errorf("compared everything at %v, want %v", r.compared, want)
	}
}

func TestOneSyncIncludesTheChangesOfTheGatherTime(t *testing.T) {
	var r recorder
	changes := 0
	runLoop(t, &r, func(l *Loop) {
		l.GatherTime = time.Second
		l.OnChange = func() { changes++ }
	}, 30*time.Second, func(s Signal) {
		time.Sleep(10 * time.Second)
		s.Wake()
		s.Wake()
	})
	if want := []time.Duration{time.Second, 11 * time.Second}; !slices.Equal(r.synced, want) {
		t.Errorf("synced at %v, want %v", r.synced, want)
	}
	if changes != 2 {
		t.Errorf("%d changes were reported, want the start and one", changes)
	}
}

func TestRetriedKeysDoNotWakeTheLoop(t *testing.T) {
	changes := NewSignal()
	keys := NewKeys(changes)
	keys.Retry("shop/web")
	if len(changes) != 0 {
		t.Error("a key that is retried wakes the loop")
	}
	keys.Add("shop/api")
	if len(changes) != 1 {
		t.Error("a changed key does not wake the loop")
	}
	if taken := keys.Take(); len(taken) != 2 || !taken["shop/web"] || !taken["shop/api"] {
		t.Errorf("took %v", taken)
	}
	if taken := keys.Take(); len(taken) != 0 {
		t.Errorf("took %v for a second time", taken)
	}
}
