package cache

import "sync"

// maxOwn bounds how many of the server's own writes are remembered.
const maxOwn = 1024

// own remembers what this server has just written, until the store's watch brings it
// back: it need not be decoded again then.
type own struct {
	mu      sync.Mutex
	entries map[string]*Entry // by store key
}

// Wrote tells the cache of an entry that this server has written at its revision. The
// watch alone says when it is to be seen.
func (c *Cache) Wrote(e *Entry) {
	key := c.Key(e.kind, e.Key)
	if e.Revision <= c.Reached() {
		return // it has been back already
	}
	c.own.mu.Lock()
	defer c.own.mu.Unlock()
	if c.own.entries == nil || len(c.own.entries) >= maxOwn {
		c.own.entries = map[string]*Entry{}
	}
	c.own.entries[key] = e
}

// take returns the entry of a key at a revision, if it is this server's own.
func (o *own) take(key string, revision int64) *Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.entries[key]
	if e == nil || e.Revision > revision {
		return nil
	}
	delete(o.entries, key)
	if e.Revision != revision {
		return nil
	}
	return e
}
