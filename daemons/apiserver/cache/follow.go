package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"clusterctl/daemons/store"
)

// errWentBack reports that the store's history differs from the followed one, because the store was restored.
var errWentBack = fmt.Errorf(
	"%w: it has gone back to an earlier revision, as when it is restored",
	store.ErrUnavailable,
)

// wentBack checks whether the store's revision is lower than the reached one. If the store does not answer, it returns
// nil.
func (c *Cache) wentBack(ctx context.Context, reached int64) error {
	ctx, cancel := context.WithTimeout(ctx, LookTimeout)
	defer cancel()
	if revision, err := c.store.Revision(ctx); err == nil && revision < reached {
		return errWentBack
	}
	return nil
}

// again makes Run load everything again.
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
				if c.wentBack(ctx, c.Reached()) != nil { // it may have been loaded again since
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

// apply passes the events of whole revisions to their resources. Each resource applies its changes of a batch at once.
// Readers see the batch when progress reaches its revision.
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
					ch.entry, ch.err = c.entry(r, rest, bytes.Clone(e.Value), e.Revision)
				}
			}
			if e.Err != nil {
				r.tell(e.Err)
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

// changed holds the changes of a batch for one resource.
type changed struct {
	resource *Resource
	changes  []change
}
