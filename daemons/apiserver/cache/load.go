package cache

import (
	"context"
	"sync"

	"clusterctl/daemons/store"
)

// decoders is how many batches are decoded at the same time.
const decoders = 4

func (c *Cache) load(ctx context.Context) (int64, error) {
	c.feed.Lock()
	defer c.feed.Unlock()
	all := loaded{
		entries: map[*Resource][]*Entry{},
		unread:  map[*Resource]map[string]error{},
		names:   map[*Names][]string{},
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	busy := make(chan struct{}, decoders)
	revision, err := c.store.All(ctx, c.prefix, func(kvs []store.KV) error {
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
		for ; r != nil; r = r.next {
			r.reset(all.entries[r], all.unread[r], revision)
		}
	}
	for _, n := range c.names {
		n.replace(all.names[n])
	}
	c.progress.begin(revision)
	return revision, nil
}

// loaded is what has been read of the store's contents so far.
type loaded struct {
	mu      sync.Mutex
	entries map[*Resource][]*Entry
	unread  map[*Resource]map[string]error
	names   map[*Names][]string
}

func (c *Cache) loadOne(all *loaded, kv store.KV) {
	r, rest := c.find(kv.Key)
	if r == nil {
		if n, name := c.named(kv.Key); n != nil {
			all.mu.Lock()
			defer all.mu.Unlock()
			all.names[n] = append(all.names[n], name)
		}
		return
	}
	for ; r != nil; r = r.next {
		e, err := (*Entry)(nil), kv.Err
		if err == nil {
			e, err = c.entry(r, rest, kv.Value, kv.Revision)
		} else {
			r.tell(err)
		}
		all.mu.Lock()
		if err == nil {
			all.entries[r] = append(all.entries[r], e)
		} else {
			all.unread[r] = with(all.unread[r], rest, err)
		}
		all.mu.Unlock()
	}
}

// entry returns the entry of a stored value of a resource.
func (c *Cache) entry(r *Resource, rest string, value []byte, revision int64) (*Entry, error) {
	e, err := NewEntry(r.Kind, rest, value, revision, nil)
	if err != nil {
		return nil, r.undecodable(rest, revision, err)
	}
	e.home = r
	return e, nil
}
