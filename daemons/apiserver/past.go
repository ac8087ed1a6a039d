package apiserver

import (
	"errors"

	"clusterctl/daemons/apiserver/cache"
)

// What there was at a revision is known for as long as the store knows it, and no longer, so that a list can be read to
// its end in the time between two compactions, however much changes meanwhile. Mostly the events in memory tell it.
// Where these have been let go, since there were too many, the store is asked for the page that is wanted. Watches are
// not: what the events in memory do not tell them any more is 410, and their clients list again.

const (
	// pastPage is how many objects are asked for at a time, and pastBytes how much is gathered of them at most.
	pastPage  = 50
	pastBytes = 64 << 20
	// mostPasts is how many lists are read from the store at once.
	mostPasts = 2
)

// exactly finds the state at a revision, or as much of it as a page needs that begins after a key; then rest is how
// many there are from there on.
func (s *Server) exactly(
	q *request,
	sel *selection,
	revision int64,
	after string,
	limit int,
) (snapshot *cache.Snapshot, rest int64, err error) {
	if _, err := s.reached(q.http.Context(), revision); err != nil {
		return nil, 0, err
	}
	if !s.cache.Keeps(revision) {
		return nil, 0, cache.ErrExpired
	}
	if snapshot, err = q.cache.At(revision); !errors.Is(err, cache.ErrExpired) {
		return snapshot, 0, err
	}
	return s.past(q, sel, revision, after, limit)
}

// past reads from the store what a page needs.
func (s *Server) past(
	q *request,
	sel *selection,
	revision int64,
	after string,
	limit int,
) (*cache.Snapshot, int64, error) {
	ctx := q.http.Context()
	if sel.versioned(q) {
		return nil, 0, cache.ErrExpired // that would be to convert all there is for one page
	}
	select {
	case s.pasts <- struct{}{}:
		defer func() { <-s.pasts }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	var found []*cache.Entry
	rest, size := int64(0), 0
	for first := true; ; first = false {
		some, last, count, err := s.cache.Past(ctx, q.cache, sel.prefix, after, revision, pastPage)
		if err != nil {
			return nil, 0, unavailablePast(err)
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
			return q.cache.Built(found, revision), rest, nil
		case size > pastBytes:
			return nil, 0, cache.ErrExpired
		}
		after = last
	}
}

func unavailablePast(err error) error {
	if errors.Is(err, cache.ErrExpired) {
		return err
	}
	return unavailable(err)
}
