// Package cache is what the API server answers reads from: for every kind a snapshot
// of all objects that never changes under its reader, and a log of events that all
// watchers share. One watch of the store keeps it current, and a read that must be
// consistent waits until the cache has come as far as the store was when it asked. It
// encodes no answers and knows no rules about objects.
//
// The events of a kind are kept until the store forgets them, at most so many bytes of
// them: then the oldest go. A list that goes on at a revision before that asks the store
// for the page it wants, which is as exact and costs the store a read; a watch from
// before it is refused as too old, and its client lists again. After a compaction both
// are refused. An object whose value cannot be read stays known as that: it is an error
// to whoever wants it, and an event that ends the watches that it concerns.
package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// Cache is the cache of all kinds.
type Cache struct {
	store  store.Store
	prefix string // ends in a slash
	log    *slog.Logger

	tables atomic.Pointer[tables]
	feed   sync.Mutex // held while events are handed out, and while tables change

	progress  progress
	compacted atomic.Int64
	restored  chan struct{} // holds a token when the store was found to have gone back
	budget    budget
	looks     looks
	own       own
	names     map[string]*Names // by the word that their keys begin with
}

// New returns an empty cache over what is below prefix. Run fills it.
func New(s store.Store, prefix string, list []*kinds.Kind, log *slog.Logger) *Cache {
	c := &Cache{
		store: s, prefix: strings.TrimSuffix(prefix, "/") + "/", log: log, names: map[string]*Names{}, restored: make(chan struct{}, 1),
	}
	t := &tables{byKey: map[string]*Resource{}, byName: map[schema.GroupResource]*Resource{}}
	for _, k := range list {
		if k.Virtual {
			continue
		}
		r := newResource(k, &c.budget)
		t.byKey[StorageKey(k)] = r
		t.byName[k.GR()] = r
	}
	c.tables.Store(t)
	return c
}

// StorageKey is the part of a kind's keys after the prefix.
func StorageKey(k *kinds.Kind) string {
	if k.StorageKey != "" {
		return k.StorageKey
	}
	return k.Resource
}

// Key returns an object's key in the store.
func (c *Cache) Key(k *kinds.Kind, key string) string {
	return c.prefix + StorageKey(k) + "/" + key
}

// Resource returns the cache of a resource, nil if there is none.
func (c *Cache) Resource(gr schema.GroupResource) *Resource { return c.tables.Load().byName[gr] }

// Resources returns the caches of all resources.
func (c *Cache) Resources() []*Resource { return slices.Collect(maps.Values(c.tables.Load().byName)) }

// Run loads what the store holds and follows it until ctx ends. When the store cannot
// say what changed, it loads anew.
func (c *Cache) Run(ctx context.Context) error {
	const first, most = 100 * time.Millisecond, 5 * time.Second
	pause := first
	for ctx.Err() == nil {
		began := time.Now()
		revision, err := c.load(ctx)
		again := first
		for err == nil {
			from := revision
			revision, err = c.follow(ctx, revision)
			if errors.Is(err, store.ErrCompacted) || errors.Is(err, errWentBack) || ctx.Err() != nil {
				break
			}
			if revision > from {
				again = first
			}
			c.log.Warn("watch of the store ended", "err", err)
			if err = c.rest(ctx, again); err != nil {
				break
			}
			if err = c.wentBack(ctx, revision); err != nil {
				break
			}
			again = min(2*again, time.Second) // no longer: whoever reads waits for the watch
		}
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > most {
			pause = first
		}
		c.log.Warn("loading the store's contents", "err", err)
		if c.rest(ctx, pause) != nil {
			break
		}
		pause = min(2*pause, most)
	}
	return nil
}

func (c *Cache) rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// decoders is how many parts of what is loaded are decoded at once.
const decoders = 4

func (c *Cache) load(ctx context.Context) (int64, error) {
	c.feed.Lock()
	defer c.feed.Unlock()
	all := loaded{entries: map[*Resource][]*Entry{}, unread: map[*Resource]map[string]error{}, names: map[*Names][]string{}}
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

// loaded is what the store holds, as far as it has been read.
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
			e, err = c.entry(r, kv.Key, rest, kv.Value, kv.Revision)
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

// entry decodes what the store holds at a key of a resource, whose rest is given.
func (c *Cache) entry(r *Resource, key, rest string, value []byte, revision int64) (*Entry, error) {
	e, err := NewEntry(r.Kind, rest, value, revision, nil)
	if err != nil {
		c.log.Error("a stored object cannot be decoded: restore it, or delete it with ignoreStoreReadErrorWithClusterBreakingPotential", "key", key, "revision", revision, "err", err)
		return nil, &store.Unreadable{Key: key, Revision: revision, What: store.NotDecodable, Err: err}
	}
	return e, nil
}

// find splits a store key into its resource and the rest.
func (c *Cache) find(key string) (*Resource, string) {
	rest, ok := strings.CutPrefix(key, c.prefix)
	if !ok {
		return nil, ""
	}
	byKey := c.tables.Load().byKey
	for at := 0; ; {
		next := strings.IndexByte(rest[at:], '/')
		if next < 0 {
			return nil, ""
		}
		at += next
		if r := byKey[rest[:at]]; r != nil {
			return r, rest[at+1:]
		}
		at++
	}
}

// errWentBack is that the store holds another past than the one that was followed: it has been restored.
var errWentBack = fmt.Errorf("%w: it has gone back to an earlier revision, as when it is restored", store.ErrUnavailable)

// wentBack asks a store whose watch has ended whether it still is where it was. One that does not answer is not asked twice.
func (c *Cache) wentBack(ctx context.Context, reached int64) error {
	ctx, cancel := context.WithTimeout(ctx, LookTimeout)
	defer cancel()
	if revision, err := c.store.Revision(ctx); err == nil && revision < reached {
		return errWentBack
	}
	return nil
}

// again has everything loaded anew.
func (c *Cache) again() {
	select {
	case c.restored <- struct{}{}:
	default:
	}
}

func (c *Cache) follow(asked context.Context, after int64) (int64, error) {
	ctx, end := context.WithCancelCause(asked)
	var attending sync.WaitGroup
	defer attending.Wait()
	defer end(nil)
	attending.Go(func() {
		for {
			select {
			case <-c.restored:
				if c.wentBack(ctx, c.Reached()) != nil { // it may have been loaded anew since
					end(errWentBack)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	err := c.store.Watch(ctx, c.prefix, after, func(batch store.Batch) error {
		c.apply(batch.Events)
		after = max(after, batch.Revision)
		c.progress.reach(after)
		return nil
	})
	if cause := context.Cause(ctx); errors.Is(cause, errWentBack) {
		err = cause
	}
	return after, err
}

// apply hands whole revisions to their resources. Within a batch each resource takes
// its changes at once; readers see the batch when progress reaches its revision.
func (c *Cache) apply(events []store.Event) {
	c.feed.Lock()
	defer c.feed.Unlock()
	var all []changed
	for _, e := range events {
		r, rest := c.find(e.Key)
		if r == nil {
			if n, name := c.named(e.Key); n != nil {
				n.note(name, !e.Deleted)
			}
		}
		for ; r != nil; r = r.next {
			ch := change{key: rest, revision: e.Revision, err: e.Err}
			if !e.Deleted && e.Err == nil {
				if ch.entry = c.own.take(r.Kind, e.Key, e.Value, e.Revision); ch.entry == nil {
					ch.entry, ch.err = c.entry(r, e.Key, rest, bytes.Clone(e.Value), e.Revision)
				}
			}
			at := slices.IndexFunc(all, func(other changed) bool { return other.resource == r })
			if at < 0 {
				at, all = len(all), append(all, changed{resource: r})
			}
			all[at].changes = append(all[at].changes, ch)
		}
	}
	for _, one := range all {
		one.resource.apply(one.changes)
	}
}

// changed is what a batch of events means to one resource.
type changed struct {
	resource *Resource
	changes  []change
}

// Reached returns how far the cache has come, 0 before it is first filled.
func (c *Cache) Reached() int64 { return c.progress.now() }

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
func (c *Cache) Past(ctx context.Context, r *Resource, prefix, after string, revision int64, limit int) (entries []*Entry, last string, count int64, err error) {
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
		e, err = c.entry(r, kv.Key, last, kv.Value, kv.Revision)
		entries = append(entries, e)
	}
	return entries, last, count, err
}

// Ready returns nil once the cache has been filled.
func (c *Cache) Ready() error {
	if c.Reached() == 0 {
		return errors.New("the store's contents are not loaded yet")
	}
	return nil
}

// WaitFor returns when the cache has reached a revision.
func (c *Cache) WaitFor(ctx context.Context, revision int64) error {
	// A write of ours is back within a millisecond or so. Revisions that others use
	// are not: then the store is asked how far the watch has come.
	ask := 2 * time.Millisecond
	for {
		if c.Reached() >= revision {
			return nil
		}
		reached, changed := c.progress.look()
		if reached >= revision {
			return nil
		}
		timer := time.NewTimer(ask)
		select {
		case <-changed:
		case <-timer.C:
			if err := c.store.Progress(ctx); err != nil && ctx.Err() == nil {
				c.log.Debug("ask for progress", "err", err)
			}
			ask = min(2*ask, 200*time.Millisecond)
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for revision %d, at %d: %w", revision, reached, ctx.Err())
		}
		timer.Stop()
	}
}

// Current returns when the cache has seen all writes that were done before the call,
// and the revision it has then reached.
func (c *Cache) Current(ctx context.Context) (int64, error) {
	revision, err := c.look(ctx)
	if err != nil {
		return 0, err
	}
	if err := c.WaitFor(ctx, revision); err != nil {
		return 0, err
	}
	return c.Reached(), nil
}
