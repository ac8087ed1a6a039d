package read

import (
	"errors"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
)

// A list at an old revision works as long as the store has that revision. So a paged list can be read to its end within
// the time between two compactions, whatever changes meanwhile. Usually the event log in memory has the state. If the
// log has dropped those events, the server reads the page from the store. Watches do not do that: they get status 410,
// and their clients list again.

const (
	// pastPageSize is how many objects are read at a time. maxPastBytes is the most memory, in bytes, for the selected
	// ones.
	pastPageSize = 50
	maxPastBytes = 64 << 20
	// maxPastLists is how many lists may read from the store at the same time.
	maxPastLists = 2
)

// snapshotAt returns the state at a revision. The snapshot may be limited to the page that follows the key after. In
// this case rest is the number of objects from there on.
func (s *Reads) snapshotAt(
	q *request.Request,
	sel *Selection,
	revision int64,
	after string,
	limit int,
) (snapshot *cache.Snapshot, rest int64, err error) {
	if _, err := s.waitForRevision(q.HTTP.Context(), revision); err != nil {
		return nil, 0, err
	}
	if !s.cache.MayHaveRevision(revision) {
		return nil, 0, cache.ErrExpired
	}
	if snapshot, err = q.Cache.SnapshotAt(revision); !errors.Is(err, cache.ErrExpired) {
		return snapshot, 0, err
	}
	return s.readPast(q, sel, revision, after, limit)
}

// readPast reads the page from the store.
func (s *Reads) readPast(
	q *request.Request,
	sel *Selection,
	revision int64,
	after string,
	limit int,
) (*cache.Snapshot, int64, error) {
	ctx := q.HTTP.Context()
	if sel.dependsOnVersion(q) {
		return nil, 0, cache.ErrExpired // all objects would have to be converted for one page
	}
	select {
	case s.past <- struct{}{}:
		defer func() { <-s.past }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	var found []*cache.Entry
	rest, size := int64(0), 0
	for first := true; ; first = false {
		some, last, count, err := s.cache.Past(ctx, q.Cache, sel.prefix, after, revision, pastPageSize)
		if err != nil {
			return nil, 0, pastError(err)
		}
		if first {
			rest = count
		}
		for _, e := range some {
			if sel.selects(e) {
				found, size = append(found, e), size+e.Size()
			}
		}
		switch {
		case int64(len(some)) == count || limit > 0 && len(found) > limit:
			return q.Cache.NewSnapshot(found, revision), rest, nil
		case size > maxPastBytes:
			return nil, 0, cache.ErrExpired
		}
		after = last
	}
}

func pastError(err error) error {
	if errors.Is(err, cache.ErrExpired) {
		return err
	}
	return request.UnavailableError(err)
}
