package cache

import (
	"context"
	"errors"

	"clusterctl/daemons/store"
)

// RecordCompaction records that the store was compacted at a revision, and drops the events up to it. Lists at older
// revisions are refused, so nothing needs these events.
func (c *Cache) RecordCompaction(revision int64) {
	for {
		before := c.compacted.Load()
		if revision <= before {
			return
		}
		if c.compacted.CompareAndSwap(before, revision) {
			break
		}
	}
	for _, r := range c.Resources() {
		r.trim(revision)
	}
}

// MayHaveRevision reports whether the store may still have the state at a revision.
func (c *Cache) MayHaveRevision(revision int64) bool { return revision >= c.compacted.Load() }

// Past reads at most limit objects of a resource from the store, at a revision and after a key. It returns the last
// key, and the number of objects from after on. An object that cannot be read is an error.
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
