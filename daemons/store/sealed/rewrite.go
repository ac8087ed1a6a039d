package sealed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/store"
)

// fileCheckInterval is how often the file is checked.
const fileCheckInterval = 5 * time.Second

// rewriteProgress is the state of rewriting.
type rewriteProgress struct {
	mu            sync.Mutex
	done          [sha256.Size]byte // version of the rules with which all values have been written
	undecryptable int               // number of values that cannot be decrypted, and so stay unchanged
}

// Reload makes the store use the file's current content. If that is invalid, or a KMS plugin that it adds does not
// work, Reload returns an error and the former configuration stays in use.
func (s *Store) Reload() error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	former := s.current()
	r, err := readRules(s.File, s.pool)
	if err != nil {
		return err
	}
	if r.digest == former.digest {
		return s.waitForCommitsBriefly()
	}
	if err := s.checkPlugins(context.Background(), r.added); err != nil {
		s.pool.closeUnused(nil, r.added)
		return fmt.Errorf("take %s into use: %w", s.File, err)
	}
	s.mu.Lock()
	s.rules = r
	s.mu.Unlock()
	s.pool.closeUnused(r.plugins, former.plugins)
	s.watches.endWatches()
	s.requestRewrite()
	s.Log.Info("the encryption configuration has changed and is in use", "file", s.File, "providers", r.order)
	return s.waitForCommitsBriefly()
}

// commitWait is how long a reload waits for writes with a former key before it reports them as an error.
const commitWait = 2 * time.Second

func (s *Store) waitForCommitsBriefly() error {
	ctx, cancel := context.WithTimeout(context.Background(), commitWait)
	defer cancel()
	return s.waitForCommits(ctx)
}

// CheckRewritten returns an error unless all values are encrypted as the EncryptionConfiguration specifies.
func (s *Store) CheckRewritten() error {
	if err := s.Reload(); err != nil {
		return err
	}
	now := s.current().version()
	s.progress.mu.Lock()
	defer s.progress.mu.Unlock()
	switch {
	case s.progress.done != now:
		return errors.New("what is stored is still being written with another key")
	case s.progress.undecryptable > 0:
		return fmt.Errorf("%d stored values cannot be decrypted; the log names them", s.progress.undecryptable)
	}
	return nil
}

// Run reloads the file when it changes, checks KMS plugins, and rewrites values that were written with another key,
// until ctx ends.
func (s *Store) Run(ctx context.Context, resources func() []schema.GroupResource) error {
	var attending sync.WaitGroup
	defer attending.Wait()
	attending.Go(func() { s.monitorPlugins(ctx) })
	tick := time.NewTicker(fileCheckInterval)
	defer tick.Stop()
	const first, maximum = time.Second, 30 * time.Second
	for pause := first; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.Reload(); err != nil {
				s.Log.Warn("take the encryption configuration into use", "err", err)
			}
		case <-s.changed:
			err := s.rewriteAll(ctx, resources())
			if err == nil || ctx.Err() != nil {
				pause = first
				continue
			}
			s.Log.Warn("write objects again that another key encrypted; it is tried again", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, maximum)
			s.requestRewrite()
		}
	}
}

func (s *Store) rewriteAll(ctx context.Context, resources []schema.GroupResource) error {
	// Wait for the writes that chose a former key, so that none of them is written after its value has been checked.
	r := s.current()
	if err := s.waitForCommits(ctx); err != nil {
		return err
	}
	version := r.version()
	count, broken := 0, 0
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
		s.Log.Info("wrote objects again that another key had encrypted", "values", count)
	}
	s.progress.mu.Lock()
	defer s.progress.mu.Unlock()
	s.progress.done, s.progress.undecryptable = version, broken
	return nil
}

// rewrite writes each value of a resource again that does not have its current form. If a value changes meanwhile, that
// write has used the current key already.
func (s *Store) rewrite(ctx context.Context, r *parsedRules, gr schema.GroupResource) (count, broken int, err error) {
	prefix, w := s.Prefixes(gr), r.writer(gr)
	if prefix == "" {
		return 0, 0, nil
	}
	_, err = s.Store.All(ctx, prefix, func(kvs []store.KeyValue) error {
		for _, kv := range kvs {
			if w == nil && !isSealed(kv.Value) || w != nil && w.isCurrentForm(kv.Value) {
				continue
			}
			plain, err := kv.Value, error(nil)
			if isSealed(plain) {
				if plain, err = r.open(ctx, kv.Key, kv.Value); err != nil {
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
				return fmt.Errorf("write %s again: %w", kv.Key, err)
			}
			if done.Done {
				count++
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("write the stored objects of %s again: %w", gr, err)
	}
	return count, broken, err
}
