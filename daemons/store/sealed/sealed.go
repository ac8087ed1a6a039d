// Package sealed is a store whose values are encrypted at rest by an EncryptionConfiguration. For each resource the
// first provider encrypts, and all providers decrypt. Values have upstream's layout, so upstream's documentation and
// scanners apply. The configuration file is read again when it changes, and values of other keys are then rewritten.
// Package kms handles keys that a plugin holds.
package sealed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/sealed/kms"
)

// Config configures a Store.
type Config struct {
	Store    store.Store                           // required
	File     string                                // path of an EncryptionConfiguration
	Prefixes func(schema.GroupResource) string     // returns the prefix of a resource's keys; empty if it is not stored
	Resource func(key string) schema.GroupResource // returns the resource of a key; empty if there is none
	Log      *slog.Logger                          // required
}

// Store encrypts the values that it writes and decrypts those that it reads.
type Store struct {
	Config

	mu    sync.RWMutex // not held during calls of other packages
	rules *parsedRules
	// commits counts the commits in progress by the rules whose key they chose. While there are commits for former
	// rules, a value may still be written with a former key.
	commits map[*parsedRules]*sync.WaitGroup

	pool      *pluginPool
	reloading sync.Mutex
	changed   chan struct{} // holds a token when stored values may need rewriting

	progress rewriteProgress
	watches  watchEnder
}

var _ store.Store = (*Store)(nil)

// Open reads the file and returns the store over c.Store. It does not wait for KMS plugins that do not work; operations
// that need them do.
func Open(c Config) (*Store, error) {
	s := &Store{Config: c, changed: make(chan struct{}, 1), pool: &pluginPool{log: c.Log}}
	var err error
	if s.rules, err = readRules(c.File, s.pool); err != nil {
		return nil, err
	}
	_ = s.checkPlugins(context.Background(), s.rules.plugins) // the plugins log the errors
	s.requestRewrite()
	return s, nil
}

// requestRewrite makes Run check all stored values once more.
func (s *Store) requestRewrite() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *Store) current() *parsedRules {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rules
}

// decrypt decrypts a value with the current keys, even if they change meanwhile.
func (s *Store) decrypt(ctx context.Context, key string, value []byte) (plain []byte, err error) {
	for r := s.current(); ; {
		if plain, err = r.open(ctx, key, value); err == nil {
			return plain, nil
		}
		now := s.current()
		if now == r {
			return nil, err
		}
		r = now
	}
}

// openValue decrypts a value. If that fails, the error is an Unreadable. It is marked as passing if the plugin does not
// answer at present.
func (s *Store) openValue(ctx context.Context, key string, value []byte, revision int64) ([]byte, error) {
	if !isSealed(value) {
		return value, nil
	}
	plain, err := s.decrypt(ctx, key, value)
	switch {
	case err == nil:
		return plain, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, kms.ErrPlugin):
		s.watches.recordMissed()
		s.Log.Warn("a stored value cannot be decrypted at present", "key", key, "err", err)
		return nil, newUnreadable(key, revision, err)
	}
	s.watches.recordMissed()
	s.Log.Error("a stored value cannot be decrypted: give --encryption-provider-config the key that wrote it", "key",
		key, "err", err)
	return nil, newUnreadable(key, revision, err)
}

func newUnreadable(key string, revision int64, err error) *store.Unreadable {
	return &store.Unreadable{
		Key:       key,
		Revision:  revision,
		Temporary: errors.Is(err, kms.ErrPlugin),
		Problem:   store.NotTransformable,
		Err:       err,
	}
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (*store.KeyValue, error) {
	kv, err := s.Store.Get(ctx, key)
	if err != nil || kv == nil || !isSealed(kv.Value) {
		return kv, err
	}
	plain, err := s.decrypt(ctx, key, kv.Value)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("decrypt %s: %w", key, ctx.Err())
		}
		return nil, newUnreadable(key, kv.Revision, err)
	}
	return &store.KeyValue{Key: kv.Key, Value: plain, Revision: kv.Revision}, nil
}

// All implements store.Store.
func (s *Store) All(ctx context.Context, prefix string, take func([]store.KeyValue) error) (int64, error) {
	return s.Store.All(ctx, prefix, func(kvs []store.KeyValue) error {
		for i := range kvs {
			kvs[i].Value, kvs[i].Err = s.openValue(ctx, kvs[i].Key, kvs[i].Value, kvs[i].Revision)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return take(kvs)
	})
}

// Past implements store.Store.
func (s *Store) Past(ctx context.Context, prefix, after string, revision int64, limit int) ([]store.KeyValue,
	int64, error) {
	kvs, count, err := s.Store.Past(ctx, prefix, after, revision, limit)
	for i := range kvs {
		kvs[i].Value, kvs[i].Err = s.openValue(ctx, kvs[i].Key, kvs[i].Value, kvs[i].Revision)
	}
	if err == nil {
		err = ctx.Err()
	}
	return kvs, count, err
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	result, err := s.commit(ctx, t)
	for i, kv := range result.Current {
		if kv != nil && isSealed(kv.Value) {
			own := &store.KeyValue{Key: kv.Key, Revision: kv.Revision}
			own.Value, own.Err = s.openValue(ctx, kv.Key, kv.Value, kv.Revision)
			result.Current[i] = own
		}
	}
	return result, err
}

// beginCommit counts a commit with the current rules, which it returns, until done is called.
func (s *Store) beginCommit() (r *parsedRules, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r = s.rules
	if s.commits == nil {
		s.commits = map[*parsedRules]*sync.WaitGroup{}
	}
	under := s.commits[r]
	if under == nil {
		under = &sync.WaitGroup{}
		s.commits[r] = under
	}
	under.Add(1)
	return r, under.Done
}

// waitForCommits waits until no commit with a former key is in progress. It does not block new commits.
func (s *Store) waitForCommits(ctx context.Context) error {
	s.mu.Lock()
	var former []*sync.WaitGroup
	for r, under := range s.commits {
		if r != s.rules {
			former = append(former, under)
		}
	}
	s.mu.Unlock()
	if len(former) == 0 {
		return nil
	}
	done := make(chan struct{})
	go func() { // it ends with the last of the commits, which have timeouts of their own
		defer close(done)
		for _, under := range former {
			under.Wait()
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("writes that chose a former key are still under way: %w", ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, under := range s.commits {
		if r != s.rules && slices.Contains(former, under) {
			delete(s.commits, r)
		}
	}
	return nil
}

func (s *Store) commit(ctx context.Context, t store.Txn) (store.Result, error) {
	r, done := s.beginCommit()
	defer done()
	copied := false
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
	return s.Store.Commit(ctx, t)
}

// Progress implements store.Store.
func (s *Store) Progress(ctx context.Context) error { return s.Store.Progress(ctx) }

// Revision implements store.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) { return s.Store.Revision(ctx) }

// CheckHealth implements store.Store.
func (s *Store) CheckHealth(ctx context.Context) error { return s.Store.CheckHealth(ctx) }

// Size implements store.Sized, if the underlying store does.
func (s *Store) Size(ctx context.Context) (int64, error) {
	sized, ok := s.Store.(store.Sized)
	if !ok {
		return 0, errors.New("the store does not know its size")
	}
	return sized.Size(ctx)
}

// Compact implements store.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	return s.Store.Compact(ctx, revision)
}
