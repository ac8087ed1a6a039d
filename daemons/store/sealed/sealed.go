// Package sealed is a store whose values are encrypted at rest, as an EncryptionConfiguration
// says: for each resource the first provider writes and all of them read. Values have
// upstream's layout, so that its documents and scanners hold. The keys' file is read again when
// it changes, and what another key has written is written anew. How the values got to be, and
// where the keys come from, is others' business.
package sealed

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/store"
)

// Config is what a sealed store is made of.
type Config struct {
	Store    store.Store                           // required
	File     string                                // an EncryptionConfiguration
	Prefixes func(schema.GroupResource) string     // under which a resource's keys are; empty: not stored
	Resource func(key string) schema.GroupResource // whose key it is; empty: nobody's
	Log      *slog.Logger                          // required
}

// Store encrypts what it is given and decrypts what it gives.
type Store struct {
	Config

	// mu is held by commits for reading, so that a reload waits for those that chose the
	// former key: after it, nothing is written with that.
	mu    sync.RWMutex
	rules *rules

	changed chan struct{} // holds a token when there are rules for which nothing was rewritten

	progress progress
	watches  watches
}

var _ store.Store = (*Store)(nil)

// Open reads the file and returns the store over c.Store.
func Open(c Config) (*Store, error) {
	r, err := readFile(c.File)
	if err != nil {
		return nil, err
	}
	s := &Store{Config: c, rules: r, changed: make(chan struct{}, 1)}
	s.changed <- struct{}{}
	return s, nil
}

func (s *Store) current() *rules {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rules
}

// open decrypts a value. One that cannot be is left as it is: it is nobody's object, and
// whoever decodes it says so.
func (s *Store) open(r *rules, key string, value []byte) []byte {
	if !isSealed(value) {
		return value
	}
	plain, err := r.open(key, value)
	if err != nil {
		s.watches.missed()
		s.Log.Error("a stored value cannot be decrypted: give --encryption-provider-config the key that wrote it", "key", key, "err", err)
		return value
	}
	return plain
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (*store.KV, error) {
	kv, err := s.Store.Get(ctx, key)
	if err != nil || kv == nil || !isSealed(kv.Value) {
		return kv, err
	}
	plain, err := s.current().open(key, kv.Value)
	if err != nil {
		return nil, fmt.Errorf("decrypt %s: %w", key, err)
	}
	return &store.KV{Key: kv.Key, Value: plain, Revision: kv.Revision}, nil
}

// Range implements store.Store.
func (s *Store) Range(ctx context.Context, prefix, after string, revision int64, limit int) ([]store.KV, int64, bool, error) {
	kvs, at, more, err := s.Store.Range(ctx, prefix, after, revision, limit)
	r := s.current()
	for i := range kvs {
		kvs[i].Value = s.open(r, kvs[i].Key, kvs[i].Value)
	}
	return kvs, at, more, err
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, copied := s.rules, false
	for i, p := range t.Puts {
		w := r.writer(s.Resource(p.Key))
		if w == nil {
			continue
		}
		value, err := w.seal(p.Key, p.Value)
		if err != nil {
			return store.Result{}, fmt.Errorf("encrypt %s: %w", p.Key, err)
		}
		if !copied {
			t.Puts, copied = append([]store.Put(nil), t.Puts...), true
		}
		t.Puts[i].Value = value
	}
	result, err := s.Store.Commit(ctx, t)
	for i, kv := range result.Current {
		if kv != nil && isSealed(kv.Value) {
			result.Current[i] = &store.KV{Key: kv.Key, Value: s.open(r, kv.Key, kv.Value), Revision: kv.Revision}
		}
	}
	return result, err
}

// Progress implements store.Store.
func (s *Store) Progress(ctx context.Context) error { return s.Store.Progress(ctx) }

// Revision implements store.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) { return s.Store.Revision(ctx) }

// Compact implements store.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	return s.Store.Compact(ctx, revision)
}
