package write

import (
	"context"
	"sync"
	"time"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// QuotaValidator is a validator whose decision depends on other stored objects of the namespace.
type QuotaValidator interface {
	api.Validator
	// AffectsQuota reports whether the validator may refuse this write for that reason.
	AffectsQuota(a *api.Admission) bool
}

// ledgerKind is the kind of the ledger keys, one for each namespace with quotas. Every write that a quota bounds also
// writes the ledger. So two such writes cannot both succeed, even on different servers.
var ledgerKind = &kinds.Kind{Resource: "quotaledgers", StorageKey: "ranges/quotaledgers"}

// ledgerTTL is the time to live of an unused ledger. By then every server has seen the writes that it guarded.
const ledgerTTL = time.Hour

// enforceQuota is the last stage of a write that a quota bounds. It waits until the cache has all earlier writes, and
// checks the quota again. The write then fails if another bounded write of the namespace was faster.
func (a *attempt) enforceQuota(ctx context.Context) error {
	quota := a.s.config.Quota
	if quota == nil || a.w.dryRun || a.q.Namespace == "" {
		return nil
	}
	admission := a.admission()
	if !quota.AffectsQuota(admission) {
		return nil
	}
	end, err := a.s.quotaLocks.lock(ctx, a.q.Namespace)
	if err != nil {
		return request.UnavailableError(err)
	}
	a.unlockQuota = end
	key := a.s.config.Cache.Key(ledgerKind, a.q.Namespace)
	kv, err := a.s.config.Store.Get(ctx, key)
	if err != nil {
		return request.UnavailableError(err)
	}
	guard := store.Guard{Key: key}
	if kv != nil {
		guard.Revision = kv.Revision
		err = a.s.config.Cache.WaitFor(ctx, kv.Revision)
	} else {
		_, err = a.s.config.Cache.WaitForCurrent(ctx)
	}
	if err != nil {
		return request.UnavailableError(err)
	}
	if err := quota.Validate(ctx, admission); err != nil {
		return err
	}
	// Counting may have found unreadable objects.
	if err := rejectIfUncountable(a.s.config.Cache, admission); err != nil {
		return err
	}
	a.claims.Guards = append(a.claims.Guards, guard)
	a.claims.Puts = append(a.claims.Puts, store.Put{Key: key, Value: []byte(a.q.Served.Resource), TTL: ledgerTTL})
	return nil
}

// releaseQuota lets the next write of the namespace check its quota.
func (a *attempt) releaseQuota() {
	if a.unlockQuota != nil {
		a.unlockQuota()
		a.unlockQuota = nil
	}
}

// namedLocks are locks by name. A lock exists while a caller holds it or waits for it. They keep this server's own
// writes from conflicting in the store.
type namedLocks struct {
	mu    sync.Mutex
	locks map[string]*namedLock
}

type namedLock struct {
	free  chan struct{} // holds a token while the lock is free
	users int
}

// lock waits until the caller holds the lock of that name. The caller releases it by calling end.
func (t *namedLocks) lock(ctx context.Context, name string) (end func(), err error) {
	t.mu.Lock()
	if t.locks == nil {
		t.locks = map[string]*namedLock{}
	}
	own := t.locks[name]
	if own == nil {
		own = &namedLock{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		t.locks[name] = own
	}
	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.locks, name)
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
