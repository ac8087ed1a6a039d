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
	feed   sync.Mutex // held while events are applied, and while tables change

	progress  progress
	compacted atomic.Int64
	restored  chan struct{} // holds a token when the store was found to have gone back to an earlier revision
	budget    budget
	looks     looks
	own       own
	names     map[string]*Names // by the prefix of their keys
}

// New returns an empty cache of the keys below prefix. Run fills it.
func New(s store.Store, prefix string, list []*kinds.Kind, log *slog.Logger) *Cache {
	c := &Cache{
		store: s, prefix: strings.TrimSuffix(prefix, "/") + "/", log: log, names: map[string]*Names{},
		restored: make(chan struct{}, 1),
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
			again = min(2*again, time.Second) // not longer, because consistent reads wait for the watch
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

// Find returns the resource that a store key belongs to; nil if there is none.
func (c *Cache) Find(key string) *Resource {
	r, _ := c.find(key)
	return r
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

// Reached returns the revision that the cache has reached; 0 before it is first filled.
func (c *Cache) Reached() int64 { return c.progress.now() }

// Ready returns nil once the cache has been filled.
func (c *Cache) Ready() error {
	if c.Reached() == 0 {
		return errors.New("the store's contents are not loaded yet")
	}
	return nil
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

// Current waits until the cache has all writes that finished before the call. It returns the revision that the cache
// has then reached.
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
