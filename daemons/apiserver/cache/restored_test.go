package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
)

// replaceableStore is a store that the test can replace by another one. That ends its watches, as the restart for a
// restore does.
type replaceableStore struct {
	mu sync.Mutex
	store.Store
	ended        context.CancelFunc
	keepsWatches bool // whether watches stay open, as those of a disconnected member
	watched      chan struct{}
	once         sync.Once
}

func (r *replaceableStore) current() store.Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Store
}

// replace replaces the store once the cache watches it.
func (r *replaceableStore) replace(s store.Store) {
	<-r.watched
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Store = s
	if !r.keepsWatches {
		r.ended()
	}
}

func (r *replaceableStore) Revision(ctx context.Context) (int64, error) {
	return r.current().Revision(ctx)
}
func (r *replaceableStore) Progress(ctx context.Context) error { return r.current().Progress(ctx) }
func (r *replaceableStore) All(ctx context.Context, prefix string, take func([]store.KeyValue) error) (int64, error) {
	return r.current().All(ctx, prefix, take)
}

func (r *replaceableStore) Watch(ctx context.Context, prefix string, after int64, take func(store.Batch) error) error {
	r.mu.Lock()
	s := r.Store
	ctx, r.ended = context.WithCancel(ctx)
	defer r.ended()
	r.mu.Unlock()
	r.once.Do(func() { close(r.watched) })
	return s.Watch(ctx, prefix, after, take)
}

// After a restore the cache has the store's content, and all watches end so that their clients list again.
// Proves S10.
func TestRestoredStoreIsReloaded(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		t.Run(fmt.Sprint("its watch goes on: ", keeps), func(t *testing.T) {
			open := func(names ...string) *memory.Store {
				s := memory.New()
				t.Cleanup(s.Close)
				for _, name := range names {
					text := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"a","name":%q}}`, name)
					if _, err := s.Commit(t.Context(),
						store.Txn{Puts: []store.Put{{Key: "/registry/pods/a/" + name,
							Value: []byte(text)}}}); err != nil {
						t.Fatal(err)
					}
				}
				return s
			}
			s := &replaceableStore{Store: open("x", "y", "z"), keepsWatches: keeps, watched: make(chan struct{})}
			c := New(s, "/registry", []*kinds.Kind{podKind()}, slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			if _, err := c.WaitForCurrent(ctx); err != nil {
				t.Fatal(err)
			}
			pods := c.Resource(podKind().GR())
			cursor, err := pods.Watch(Topic{}, pods.Revision())
			if err != nil {
				t.Fatal(err)
			}
			defer cursor.Close()
			s.replace(open("x"))
			for {
				_, wake, err := cursor.Next()
				if errors.Is(err, ErrExpired) {
					break
				}
				if _, err := c.WaitForCurrent(ctx); err == nil && pods.Get("a/z") != nil {
					t.Fatal("a read that is to be current is of what was before")
				}
				select {
				case <-wake:
				case <-time.After(time.Millisecond):
				case <-ctx.Done():
					t.Fatal("the watch continues although its revisions are gone")
				}
			}
			for {
				revision, err := c.WaitForCurrent(ctx)
				if err == nil {
					if revision != 2 || pods.Get("a/z") != nil || pods.Get("a/x") == nil {
						t.Errorf("at %d there are %d pods", revision, pods.Len())
					}
					return
				}
				if ctx.Err() != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
