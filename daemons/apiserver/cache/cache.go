// Package cache holds the objects from which the API server answers reads. For every kind it has an immutable snapshot
// of all objects, and a log of events that all watches share. One watch of the store keeps it current. A consistent
// read waits until the cache has reached the store's revision at the time of the read. The package encodes no responses
// and has no rules about objects.
//
// The events of a kind are kept until the store compacts them, up to a limit in bytes. Beyond the limit the oldest are
// dropped. A list that continues at an older revision reads its page from the store. That is just as exact, and costs
// the store a read. A watch from an older revision is refused as too old, and its client lists again. After a
// compaction both are refused.
//
// An object whose value cannot be read remains known. Reading it is an error, and an event ends the watches that select
// it.
package cache

import (
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
	feedMu sync.Mutex // held while events are applied, and while tables change

	progress       progress
	compacted      atomic.Int64
	historyChanged chan struct{} // holds a token when the store was found to have gone back to an earlier revision
	budget         budget
	revisionReads  revisionReads
	ownWrites      ownWrites
	keySets        map[string]*KeySet // by the prefix of their keys
}

// New returns an empty cache of the keys below prefix. Run fills it.
func New(s store.Store, prefix string, list []*kinds.Kind, log *slog.Logger) *Cache {
	c := &Cache{
		store: s, prefix: strings.TrimSuffix(prefix, "/") + "/", log: log, keySets: map[string]*KeySet{},
		historyChanged: make(chan struct{}, 1),
	}
	t := &tables{byKey: map[string]*Resource{}, byName: map[schema.GroupResource]*Resource{}}
	for _, k := range list {
		if k.Virtual {
			continue
		}
		r := c.newResource(k)
		t.byKey[StorageKey(k)] = r
		t.byName[k.GR()] = r
	}
	c.tables.Store(t)
	return c
}

// StorageKey returns the part of a kind's keys that follows the prefix.
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

// Run loads the store's contents and keeps them current until ctx ends. If the store cannot report what changed, Run
// loads them again.
func (c *Cache) Run(ctx context.Context) error {
	const first, maximum = 100 * time.Millisecond, 5 * time.Second
	pause := first
	for ctx.Err() == nil {
		start := time.Now()
		revision, err := c.load(ctx)
		again := first
		for err == nil {
			from := revision
			revision, err = c.followStore(ctx, revision)
			if errors.Is(err, store.ErrCompacted) || errors.Is(err, errHistoryChanged) || ctx.Err() != nil {
				break
			}
			if revision > from {
				again = first
			}
			c.log.Warn("watch of the store ended", "err", err)
			if err = c.waitBetweenLoads(ctx, again); err != nil {
				break
			}
			if err = c.checkHistory(ctx, revision); err != nil {
				break
			}
			again = min(2*again, time.Second) // not longer, because consistent reads wait for the watch
		}
		if ctx.Err() != nil {
			break
		}
		if time.Since(start) > maximum {
			pause = first
		}
		c.log.Warn("loading the store's contents", "err", err)
		if c.waitBetweenLoads(ctx, pause) != nil {
			break
		}
		pause = min(2*pause, maximum)
	}
	return nil
}

func (c *Cache) waitBetweenLoads(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// ResourceOf returns the resource that a store key belongs to; nil if there is none.
func (c *Cache) ResourceOf(key string) *Resource {
	r, _ := c.splitKey(key)
	return r
}

// splitKey splits a store key into its resource and the rest.
func (c *Cache) splitKey(key string) (*Resource, string) {
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

// Reached returns the revision that the cache has reached; 0 before it is first filled.
func (c *Cache) Reached() int64 { return c.progress.revision() }

var errNotReady = errors.New("the store's contents are not loaded yet")

// CheckReady returns nil once the cache has been filled.
func (c *Cache) CheckReady() error {
	if c.Reached() == 0 {
		return errNotReady
	}
	return nil
}

// WaitReady returns when the cache has been filled, or with an error when ctx ends.
func (c *Cache) WaitReady(ctx context.Context) error {
	for {
		reached, changed := c.progress.state()
		if reached > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errNotReady
		}
	}
}

// WaitFor returns when the cache has reached a revision.
func (c *Cache) WaitFor(ctx context.Context, revision int64) error {
	// This server's own writes arrive within about a millisecond. Revisions used by other keys do not arrive: for them,
	// ask the store for the progress of the watch.
	ask := 2 * time.Millisecond
	for {
		if c.Reached() >= revision {
			return nil
		}
		reached, changed := c.progress.state()
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

// WaitForCurrent waits until the cache has all writes that finished before the call. It returns the revision that the
// cache has then reached.
func (c *Cache) WaitForCurrent(ctx context.Context) (int64, error) {
	revision, err := c.readRevision(ctx)
	if err != nil {
		return 0, err
	}
	if err := c.WaitFor(ctx, revision); err != nil {
		return 0, err
	}
	return c.Reached(), nil
}
