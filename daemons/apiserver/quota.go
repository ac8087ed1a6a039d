package apiserver

import (
	"context"
	"sync"
	"time"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// Bounded is a validator whose verdict depends on what else is stored of a namespace.
type Bounded interface {
	api.Validator
	// Bounds says whether the write is one that it might refuse for that.
	Bounds(a *api.Admission) bool
}

// ledgerKind is keys beside all others, one for each namespace with quotas: whoever writes
// what a quota bounds writes it, too, so that no two do at once, whichever server they ask.
var ledgerKind = &kinds.Kind{Resource: "quotaledgers", StorageKey: "ranges/quotaledgers"}

// ledgerLasts is how long a ledger that nobody writes is kept. All have seen long before what
// was written with it.
const ledgerLasts = time.Hour

// charge is the last stage of a write that a quota bounds: with everything before it seen, it
// is judged once more, and done only if nobody else is faster.
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
	if err := w.s.countable(a); err != nil { // what was found out while it was counted
		return err
	}
	w.more.Guards = append(w.more.Guards, guard)
	w.more.Puts = append(w.more.Puts, store.Put{Key: key, Value: []byte(w.q.served.Resource), TTL: ledgerLasts})
	return nil
}

// discharge lets the next write of the namespace be judged.
func (w *write) discharge() {
	if w.charged != nil {
		w.charged()
		w.charged = nil
	}
}

// turns are locks by name, each there as long as somebody has it or waits for it. They spare
// this server's writers from being in each other's way in the store.
type turns struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	free  chan struct{} // holds a token while nobody has it
	users int
}

// lock returns when it is the caller's turn, until it calls end.
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
