package cache

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// tables map names and keys to resources. They are immutable: adding or removing a kind creates new ones.
type tables struct {
	byKey  map[string]*Resource // by storage key
	byName map[schema.GroupResource]*Resource
}

// Add fills the cache of a further kind and makes it available. It replaces a kind of the same name, whose watches end
// so that their clients list again.
func (c *Cache) Add(ctx context.Context, k *kinds.Kind) error {
	r := c.newResource(k)
	r.loading.isFilling = true
	key := StorageKey(k)
	c.feedMu.Lock()
	old := c.tables.Load().byKey[key]
	if old != nil {
		old.loading.replacement = r
	} else {
		c.changeTables(func(t *tables) { t.byKey[key] = r })
	}
	c.feedMu.Unlock()

	entries, unread, revision, err := c.readKind(ctx, r, key)

	c.feedMu.Lock()
	defer c.feedMu.Unlock()
	if old != nil {
		old.loading.replacement = nil
	}
	if err != nil {
		if old == nil {
			c.changeTables(func(t *tables) { delete(t.byKey, key) })
		}
		return fmt.Errorf("read the %s that are stored: %w", k.GR(), err)
	}
	held := r.loading.held
	if r.loading.revision < revision { // otherwise everything was loaded again meanwhile
		r.reset(entries, unread, revision)
	}
	r.loading.isFilling, r.loading.held = false, nil
	r.apply(held)
	c.changeTables(func(t *tables) { t.byKey[key], t.byName[k.GR()] = r, r })
	if old != nil {
		old.endWatches()
	}
	return nil
}

// Remove removes a kind.
func (c *Cache) Remove(k *kinds.Kind) {
	c.feedMu.Lock()
	defer c.feedMu.Unlock()
	r := c.tables.Load().byName[k.GR()]
	if r == nil {
		return
	}
	c.changeTables(func(t *tables) {
		delete(t.byKey, StorageKey(k))
		delete(t.byName, k.GR())
	})
	r.endWatches()
}

// changeTables replaces the tables. The caller holds c.feed.
func (c *Cache) changeTables(f func(*tables)) {
	before := c.tables.Load()
	t := &tables{byKey: maps.Clone(before.byKey), byName: maps.Clone(before.byName)}
	f(t)
	c.tables.Store(t)
}

// readKind reads all objects of one kind from the store.
func (c *Cache) readKind(
	ctx context.Context,
	r *Resource,
	key string,
) (entries []*Entry, unread map[string]error, revision int64, err error) {
	prefix := c.prefix + key + "/"
	revision, err = c.store.All(ctx, prefix, func(kvs []store.KeyValue) error {
		for _, kv := range kvs {
			rest := kv.Key[len(prefix):]
			e, err := (*Entry)(nil), kv.Err
			if err == nil {
				e, err = c.entry(r, rest, kv.Value, kv.Revision)
			} else {
				r.logUnreadable(err)
			}
			if err != nil {
				unread = withError(unread, rest, err)
			} else {
				entries = append(entries, e)
			}
		}
		return nil
	})
	return entries, unread, revision, err
}
