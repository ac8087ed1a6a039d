package cache

import (
	"context"
	"sync"

	"clusterctl/daemons/store"
)

// decoders is how many batches are decoded at the same time.
const decoders = 4

func (c *Cache) load(ctx context.Context) (int64, error) {
	c.feedMu.Lock()
	defer c.feedMu.Unlock()
	all := loadState{
		entries:    map[*Resource][]*Entry{},
		unreadable: map[*Resource]map[string]error{},
		keySets:    map[*KeySet][]string{},
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	busy := make(chan struct{}, decoders)
	revision, err := c.store.All(ctx, c.prefix, func(kvs []store.KeyValue) error {
		select {
		case busy <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		wg.Go(func() {
			defer func() { <-busy }()
			for _, kv := range kvs {
				c.loadOne(&all, kv)
			}
		})
		return nil
	})
	if err != nil {
		return 0, err
	}
	wg.Wait()
	for _, r := range c.tables.Load().byKey {
		for ; r != nil; r = r.loading.replacement {
			r.reset(all.entries[r], all.unreadable[r], revision)
		}
	}
	for _, n := range c.keySets {
		n.replace(all.keySets[n])
	}
	c.progress.reset(revision)
	return revision, nil
}

// loadState is what has been read of the store's contents so far.
type loadState struct {
	mu         sync.Mutex
	entries    map[*Resource][]*Entry
	unreadable map[*Resource]map[string]error
	keySets    map[*KeySet][]string
}

func (c *Cache) loadOne(all *loadState, kv store.KeyValue) {
	r, rest := c.splitKey(kv.Key)
	if r == nil {
		if n, name := c.keySetOf(kv.Key); n != nil {
			all.mu.Lock()
			defer all.mu.Unlock()
			all.keySets[n] = append(all.keySets[n], name)
		}
		return
	}
	for ; r != nil; r = r.loading.replacement {
		e, err := (*Entry)(nil), kv.Err
		if err == nil {
			e, err = c.entry(r, rest, kv.Value, kv.Revision)
		} else {
			r.logUnreadable(err)
		}
		all.mu.Lock()
		if err == nil {
			all.entries[r] = append(all.entries[r], e)
		} else {
			all.unreadable[r] = withError(all.unreadable[r], rest, err)
		}
		all.mu.Unlock()
	}
}

// entry returns the entry of a stored value of a resource.
func (c *Cache) entry(r *Resource, rest string, value []byte, revision int64) (*Entry, error) {
	e, err := NewEntry(r.Kind, rest, value, revision, nil)
	if err != nil {
		return nil, r.decodeError(rest, revision, err)
	}
	e.resource = r
	return e, nil
}
