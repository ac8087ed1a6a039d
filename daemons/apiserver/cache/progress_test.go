package cache

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
)

// slowStore is a store that returns its revision when the test allows it.
type slowStore struct {
	store.Store
	results chan error
}

func (s *slowStore) Revision(ctx context.Context) (int64, error) {
	if err := <-s.results; err != nil {
		return 0, err
	}
	return s.Store.Revision(ctx)
}

type testCallback struct {
	reason    chan error
	batchDone *sync.WaitGroup
}

func (t *testCallback) OnCurrent(reason error) { t.reason <- reason }
func (t *testCallback) OnBatchDone()           { t.batchDone.Done() }

// Readers that arrive during a revision read are all served by the next one, whether they wait or are called.
func TestARevisionReadServesEarlierReaders(t *testing.T) {
	inner := memory.New()
	t.Cleanup(inner.Close)
	s := &slowStore{Store: inner, results: make(chan error)}
	c := New(s, "/registry", nil, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var others sync.WaitGroup
	ask := func() *testCallback {
		r := &testCallback{reason: make(chan error, 1), batchDone: &others}
		others.Add(1)
		c.CallWhenCurrent(r)
		return r
	}
	for range 3 {
		first := ask()
		// The revision read that serves first is in progress once the store takes the test's value.
		bad := errors.New("no majority")
		s.results <- bad
		if err := <-first.reason; !errors.Is(err, bad) {
			t.Errorf("a look that failed: %v", err)
		}
		var readers []*testCallback
		for range 5 {
			readers = append(readers, ask())
		}
		waited := make(chan error, 1)
		go func() {
			_, err := c.WaitForCurrent(ctx)
			waited <- err
		}()
		served := make(chan struct{})
		go func() {
			defer close(served)
			for _, r := range readers {
				if err := <-r.reason; err != nil {
					t.Error(err)
				}
			}
			if err := <-waited; err != nil {
				t.Error(err)
			}
		}()
		for looking := true; looking; {
			select {
			case s.results <- nil:
			case <-served:
				looking = false
			}
		}
		others.Wait()
	}
}
