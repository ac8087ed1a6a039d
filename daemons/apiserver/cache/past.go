package cache

import (
	"context"
	"errors"

	"clusterctl/daemons/store"
)

// Compacted takes in that the store has forgotten what was overwritten before a revision: no event that is older is
// of use to anybody who lists what there was at it.
func (c *Cache) Compacted(revision int64) {
	for {
		was := c.compacted.Load()
		if revision <= was {
			return
		}
		if c.compacted.CompareAndSwap(was, revision) {
			break
		}
	}
	for _, r := range c.Resources() {
		r.trim(revision)
	}
}

// Keeps says whether the store may still have what there was at a revision.
func (c *Cache) Keeps(revision int64) bool { return revision >= c.compacted.Load() }

// Past reads from the store what there was of a resource at a revision, after a key and at most so many, and returns
// where that ends and how many there were from there on. What cannot be read is an error.
func (c *Cache) Past(
	ctx context.Context,
	r *Resource,
	prefix, after string,
	revision int64,
	limit int,
) (entries []*Entry, last string, count int64, err error) {
	base := c.Key(r.Kind, "")
	if after != "" {
		after = base + after
	}
	kvs, count, err := c.store.Past(ctx, base+prefix, after, revision, limit)
	if errors.Is(err, store.ErrCompacted) {
		err = ErrExpired
	}
	for _, kv := range kvs {
		last = kv.Key[len(base):]
		if err == nil {
			err = kv.Err
		}
		if err != nil {
			break
		}
		var e *Entry
		e, err = c.entry(r, last, kv.Value, kv.Revision)
		entries = append(entries, e)
	}
	return entries, last, count, err
}
