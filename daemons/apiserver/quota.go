package apiserver

import (
	"context"
	"sync"
	"time"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// Bounded is a validator whose decision depends on other stored objects of the namespace.
type Bounded interface {
	api.Validator
	// Bounds reports whether the validator may refuse this write for that reason.
	Bounds(a *api.Admission) bool
}

// ledgerKind is the kind of the ledger keys, one for each namespace with quotas. Every write that a quota bounds also
// writes the ledger. So two such writes cannot both succeed, even on different servers.
var ledgerKind = &kinds.Kind{Resource: "quotaledgers", StorageKey: "ranges/quotaledgers"}

// ledgerLasts is the time to live of an unused ledger. By then every server has seen the writes that it guarded.
const ledgerLasts = time.Hour

// charge is the last stage of a write that a quota bounds. It waits until the cache has all earlier writes, and checks
// the quota again. The write then fails if another bounded write of the namespace was faster.
func (w *write) charge() error {
	quota := w.s.o.Quota
	if quota == nil || w.dryRun || w.q.Namespace == "" {
		return nil
	}
	a := w.admission()
	if !quota.Bounds(a) {
		return nil
	}
	ctx := w.q.http.Context()
	end, err := w.s.ledgers.lock(ctx, w.q.Namespace)
	if err != nil {
		return unavailable(err)
	}
	w.charged = end
	key := w.s.cache.Key(ledgerKind, w.q.Namespace)
	kv, err := w.s.store.Get(ctx, key)
	if err != nil {
		return unavailable(err)
	}
	guard := store.Guard{Key: key}
	if kv != nil {
		guard.Revision = kv.Revision
		err = w.s.cache.WaitFor(ctx, kv.Revision)
	} else {
		_, err = w.s.cache.Current(ctx)
	}
	if err != nil {
		return unavailable(err)
	}
	if err := quota.Validate(ctx, a); err != nil {
		return err
	}
	if err := w.s.countable(a); err != nil { // counting may have found unreadable objects
		return err
	}
	w.more.Guards = append(w.more.Guards, guard)
	w.more.Puts = append(w.more.Puts, store.Put{Key: key, Value: []byte(w.q.served.Resource), TTL: ledgerLasts})
	return nil
}

// discharge lets the next write of the namespace check its quota.
func (w *write) discharge() {
	if w.charged != nil {
		w.charged()
		w.charged = nil
	}
}

// turns are locks by name. A lock exists while a caller holds it or waits for it. They keep this server's own writes
// from conflicting in the store.
type turns struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	free  chan struct{} // holds a token while the lock is free
	users int
}

// lock waits until the caller holds the lock of that name. The caller releases it by calling end.
func (t *turns) lock(ctx context.Context, name string) (end func(), err error) {
	t.mu.Lock()
	if t.held == nil {
		t.held = map[string]*turn{}
	}
	own := t.held[name]
	if own == nil {
		own = &turn{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		t.held[name] = own
	}
	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.held, name)
		}
	}
	select {
	case <-own.free:
		return func() { own.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
