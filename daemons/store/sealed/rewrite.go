package sealed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/store"
)

// lookEvery is how often the file is looked at.
const lookEvery = 5 * time.Second

// progress is how far rewriting has come.
type progress struct {
	mu     sync.Mutex
	done   [sha256.Size]byte // the file as which everything that is stored is written
	broken int               // values that cannot be decrypted, so stay as they are
}

// Reload has the file as it is now in use, and says why if it cannot be: then the former one
// stays.
func (s *Store) Reload() error {
	r, err := readFile(s.File)
	if err != nil {
		return err
	}
	if r.digest == s.current().digest {
		return nil
	}
	s.mu.Lock()
	s.rules = r
	s.mu.Unlock()
	s.watches.reloaded()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	s.Log.Info("the encryption configuration has changed and is in use", "file", s.File)
	return nil
}

// Rewritten says whether everything that is stored is written as the file says.
func (s *Store) Rewritten() error {
	if err := s.Reload(); err != nil {
		return err
	}
	now := s.current().digest
	s.progress.mu.Lock()
	defer s.progress.mu.Unlock()
	switch {
	case s.progress.done != now:
		return errors.New("what is stored is still being written with another key")
	case s.progress.broken > 0:
		return fmt.Errorf("%d stored values cannot be decrypted; the log names them", s.progress.broken)
	}
	return nil
}

// Run reads the file again when it changes, and writes anew what another key has written,
// until ctx ends.
func (s *Store) Run(ctx context.Context, resources func() []schema.GroupResource) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.Reload(); err != nil {
				s.Log.Warn("the encryption configuration is left as it was", "err", err)
			}
		case <-s.changed:
			if err := s.rewriteAll(ctx, resources()); err != nil && ctx.Err() == nil {
				s.Log.Warn("write anew what another key has written; it is tried again", "err", err)
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
				select {
				case s.changed <- struct{}{}:
				default:
				}
			}
		}
	}
}

func (s *Store) rewriteAll(ctx context.Context, resources []schema.GroupResource) error {
	r, count, broken := s.current(), 0, 0
	for _, gr := range resources {
		if !r.covers(gr) {
			continue
		}
		n, left, err := s.rewrite(ctx, r, gr)
		count, broken = count+n, broken+left
		if err != nil {
			return err
		}
	}
	if count > 0 {
		s.Log.Info("wrote anew what another key had written", "values", count)
	}
	s.progress.mu.Lock()
	defer s.progress.mu.Unlock()
	s.progress.done, s.progress.broken = r.digest, broken
	return nil
}

// page is how many values are looked at at once.
const page = 500

// rewrite writes each value of a resource anew that is not as it would be written now.
// Whoever changes one meanwhile has written it anew already.
func (s *Store) rewrite(ctx context.Context, r *rules, gr schema.GroupResource) (count, broken int, err error) {
	prefix, w := s.Prefixes(gr), r.writer(gr)
	after, revision := "", int64(0)
	for more := prefix != ""; more; {
		var kvs []store.KV
		call, cancel := context.WithTimeout(ctx, time.Minute)
		kvs, revision, more, err = s.Store.Range(call, prefix, after, revision, page)
		cancel()
		if err != nil {
			return count, broken, fmt.Errorf("look at what is stored of %s: %w", gr, err)
		}
		for _, kv := range kvs {
			after = kv.Key
			if w == nil && !isSealed(kv.Value) || w != nil && bytes.HasPrefix(kv.Value, []byte(w.prefix)) {
				continue
			}
			plain := kv.Value
			if isSealed(plain) {
				if plain, err = r.open(kv.Key, kv.Value); err != nil {
					s.Log.Error("left as it is what cannot be decrypted", "key", kv.Key, "err", err)
					broken++
					continue
				}
			}
			call, cancel := context.WithTimeout(ctx, 10*time.Second)
			done, err := s.Commit(call, store.Txn{
				Guards: []store.Guard{{Key: kv.Key, Revision: kv.Revision}},
				Puts:   []store.Put{{Key: kv.Key, Value: plain}},
			})
			cancel()
			if err != nil {
				return count, broken, fmt.Errorf("write %s anew: %w", kv.Key, err)
			}
			if done.Done {
				count++
			}
		}
	}
	return count, broken, nil
}
