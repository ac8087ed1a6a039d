// Package memory is a store in the memory of the process, for development and tests. It behaves like the one over etcd.
// Its content is lost when the process ends.
package memory

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/google/btree"

	"clusterctl/daemons/store"
)

// keptRevisions is how many revisions stay readable before the oldest are compacted.
const keptRevisions = 20000

// Store is an in-memory store.Store. Its zero value is not usable, see New.
type Store struct {
	mu               sync.Mutex
	tree             *btree.BTreeG[store.KeyValue]
	revision         int64
	compacted        int64
	history          []revisionChanges // one for each revision after compacted, in order
	changed          chan struct{}
	progressRequests int64 // how often Progress was called
	timers           map[string]*time.Timer
}

// revisionChanges holds the changes of a revision.
type revisionChanges struct {
	revision int64
	events   []store.Event
	former   []store.KeyValue // the same keys before; those that did not exist have revision 0
}

var _ store.Store = (*Store)(nil)

// New returns an empty store at revision 1, like a new etcd.
func New() *Store {
	return &Store{
		tree:     btree.NewG(16, func(a, b store.KeyValue) bool { return a.Key < b.Key }),
		revision: 1, compacted: 1,
		changed: make(chan struct{}), timers: map[string]*time.Timer{},
	}
}

// Close stops the timers of keys with a TTL.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.timers {
		t.Stop()
	}
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (*store.KeyValue, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(key), nil
}

func (s *Store) get(key string) *store.KeyValue {
	if kv, ok := s.tree.Get(store.KeyValue{Key: key}); ok {
		return &kv
	}
	return nil
}

// batchSize is how many keys All passes on at a time.
const batchSize = 10

// All implements store.Store.
func (s *Store) All(ctx context.Context, prefix string, take func([]store.KeyValue) error) (int64, error) {
	s.mu.Lock()
	tree, revision := s.tree.Clone(), s.revision
	s.mu.Unlock()
	var some []store.KeyValue
	err := ctx.Err()
	hand := func() {
		if err == nil && len(some) > 0 {
			err = take(some)
			some = nil
		}
	}
	tree.AscendGreaterOrEqual(store.KeyValue{Key: prefix}, func(kv store.KeyValue) bool {
		if !strings.HasPrefix(kv.Key, prefix) {
			return false
		}
		if some = append(some, kv); len(some) == batchSize {
			hand()
		}
		return err == nil
	})
	hand()
	return revision, err
}

// Past implements store.Store.
func (s *Store) Past(ctx context.Context, prefix, after string, revision int64, limit int) ([]store.KeyValue,
	int64, error) {
	s.mu.Lock()
	tree, history := s.tree.Clone(), s.history
	now, compacted := s.revision, s.compacted
	s.mu.Unlock()
	switch {
	case revision > now:
		return nil, 0, store.ErrFuture
	case revision <= compacted && compacted > 1:
		return nil, 0, store.ErrCompacted
	}
	for i := len(history) - 1; i >= 0 && history[i].revision > revision; i-- {
		for j := len(history[i].former) - 1; j >= 0; j-- {
			if before := history[i].former[j]; before.Revision > 0 {
				tree.ReplaceOrInsert(before)
			} else {
				tree.Delete(before)
			}
		}
	}
	var some []store.KeyValue
	count := int64(0)
	tree.AscendGreaterOrEqual(store.KeyValue{Key: max(prefix, after)}, func(kv store.KeyValue) bool {
		if !strings.HasPrefix(kv.Key, prefix) {
			return false
		}
		if kv.Key == after {
			return true
		}
		if count++; limit == 0 || len(some) < limit {
			some = append(some, kv)
		}
		return true
	})
	return some, count, ctx.Err()
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	if err := ctx.Err(); err != nil {
		return store.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range t.Guards {
		if kv := s.get(g.Key); kv == nil && g.Revision != 0 || kv != nil && kv.Revision != g.Revision {
			return s.failedResult(t), nil
		}
	}
	return store.Result{Done: true, Revision: s.apply(t)}, nil
}

func (s *Store) failedResult(t store.Txn) store.Result {
	r := store.Result{Revision: s.revision}
	for _, g := range t.Guards {
		r.Current = append(r.Current, s.get(g.Key))
	}
	return r
}

func (s *Store) apply(t store.Txn) int64 {
	next := s.revision + 1
	var events []store.Event
	var before []store.KeyValue
	old := func(key string) {
		kv, _ := s.tree.Get(store.KeyValue{Key: key})
		kv.Key = key
		before = append(before, kv)
	}
	for _, p := range t.Puts {
		old(p.Key)
		s.tree.ReplaceOrInsert(store.KeyValue{Key: p.Key, Value: p.Value, Revision: next})
		events = append(events, store.Event{Key: p.Key, Value: p.Value, Revision: next})
		s.expire(p)
	}
	for _, key := range t.Deletes {
		old(key)
		if _, ok := s.tree.Delete(store.KeyValue{Key: key}); ok {
			events = append(events, store.Event{Key: key, Revision: next, Deleted: true})
		}
	}
	if len(events) == 0 {
		return s.revision
	}
	s.revision = next
	s.history = append(s.history, revisionChanges{revision: next, events: events, former: before})
	if len(s.history) > 2*keptRevisions {
		s.compact(next - keptRevisions)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return next
}

// expire removes a key after its TTL, unless it is written again before.
func (s *Store) expire(p store.Put) {
	if t := s.timers[p.Key]; t != nil {
		t.Stop()
		delete(s.timers, p.Key)
	}
	if p.TTL <= 0 {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(p.TTL, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.timers[p.Key] == timer {
			delete(s.timers, p.Key)
			s.apply(store.Txn{Deletes: []string{p.Key}})
		}
	})
	s.timers[p.Key] = timer
}

// Size implements store.Sized. It is the total length of keys and values.
func (s *Store) Size(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	s.tree.Ascend(func(kv store.KeyValue) bool {
		n += len(kv.Key) + len(kv.Value)
		return true
	})
	return int64(n), nil
}

// CheckHealth implements store.Store.
func (s *Store) CheckHealth(ctx context.Context) error { return ctx.Err() }

// Revision implements store.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, ctx.Err()
}

// Compact implements store.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > s.revision {
		return store.ErrFuture
	}
	if revision <= s.compacted {
		return store.ErrCompacted
	}
	s.compact(revision)
	return ctx.Err()
}

// compact discards what came before revision. That revision itself stays readable.
func (s *Store) compact(revision int64) {
	n := revision - 1 - s.compacted
	s.history = append([]revisionChanges(nil), s.history[n:]...)
	s.compacted = revision - 1
}
