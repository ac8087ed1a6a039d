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

// errHistoryChanged reports that the store's history differs from the followed one, because the store was restored.
var errHistoryChanged = fmt.Errorf("%w: it has gone back to an earlier revision, as when it is restored",
	store.ErrUnavailable)

// checkHistory checks whether the store's revision is lower than the reached one. If the store does not answer, it
// returns nil.
func (c *Cache) checkHistory(ctx context.Context, reached int64) error {
	ctx, cancel := context.WithTimeout(ctx, RevisionTimeout)
	defer cancel()
	if revision, err := c.store.Revision(ctx); err == nil && revision < reached {
		return errHistoryChanged
	}
	return nil
}

// requestReload makes Run load everything again.
func (c *Cache) requestReload() {
	select {
	case c.historyChanged <- struct{}{}:
	default:
	}
}

func (c *Cache) followStore(parent context.Context, after int64) (int64, error) {
	ctx, end := context.WithCancelCause(parent)
	var attending sync.WaitGroup
	defer attending.Wait()
	defer end(nil)
	attending.Go(func() {
		for {
			select {
			case <-c.historyChanged:
				if c.checkHistory(ctx, c.Reached()) != nil { // it may have been loaded again since
					end(errHistoryChanged)
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
	if cause := context.Cause(ctx); errors.Is(cause, errHistoryChanged) {
		err = cause
	}
	return after, err
}

// apply passes the events of whole revisions to their resources. Each resource applies its changes of a batch at once.
// Readers see the batch when progress reaches its revision.
func (c *Cache) apply(events []store.Event) {
	c.feedMu.Lock()
	defer c.feedMu.Unlock()
	var all []resourceChanges
	for _, e := range events {
		r, rest := c.splitKey(e.Key)
		if r == nil {
			if n, name := c.keySetOf(e.Key); n != nil {
				n.setPresent(name, !e.Deleted)
			}
		}
		for ; r != nil; r = r.loading.replacement {
			ch := resourceChange{key: rest, revision: e.Revision, err: e.Err}
			if !e.Deleted && e.Err == nil {
				if ch.entry = c.ownWrites.takeEntry(r.Kind, e.Key, e.Value, e.Revision); ch.entry == nil {
					ch.entry, ch.err = c.entry(r, rest, bytes.Clone(e.Value), e.Revision)
				}
			}
			if e.Err != nil {
				r.logUnreadable(e.Err)
			}
			at := slices.IndexFunc(all, func(other resourceChanges) bool { return other.resource == r })
			if at < 0 {
				at, all = len(all), append(all, resourceChanges{resource: r})
			}
			all[at].changes = append(all[at].changes, ch)
		}
	}
	for _, one := range all {
		one.resource.apply(one.changes)
	}
}

// resourceChanges holds the changes of a batch for one resource.
type resourceChanges struct {
	resource *Resource
	changes  []resourceChange
}
