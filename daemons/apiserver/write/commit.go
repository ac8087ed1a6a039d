package write

import (
	"bytes"
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/store"
)

// This file writes to the store. Each transaction is guarded by the state that the write was checked against.

// readStored reads an object directly from the store, not from the cache.
func (s *Writes) readStored(ctx context.Context, q *request.Request, key string) (*cache.Entry, error) {
	kv, err := s.config.Store.Get(ctx, s.config.Cache.Key(q.StoredKind(), key))
	if err != nil || kv == nil {
		return nil, request.UnavailableError(err)
	}
	e, err := cache.NewEntry(q.StoredKind(), key, kv.Value, kv.Revision, nil)
	if err == nil {
		_, err = e.Object() // decode now, so that an unreadable object is reported here
	}
	if err != nil {
		if unreadable := (*store.Unreadable)(nil); errors.As(err, &unreadable) {
			err = unreadable.Err
		}
		return nil, &store.Unreadable{Key: kv.Key, Revision: kv.Revision, Problem: store.NotDecodable, Err: err}
	}
	return e, nil
}

// insertNew writes the encoded object to the store, unless its key, or something that it claims, exists already. If
// taken is true and e is not nil, a claim exists already, not the object's key.
func (a *attempt) insertNew(ctx context.Context) (e *cache.Entry, taken bool, err error) {
	k, key := a.q.StoredKind(), a.key()
	if a.w.dryRun {
		existing, err := a.s.readStored(ctx, a.q, key)
		if err != nil || existing != nil {
			return nil, existing != nil, err
		}
		e, err = cache.NewEntry(k, key, a.next.data, 0, a.next.stored)
		return e, false, err
	}
	full := a.s.config.Cache.Key(k, key)
	txn := a.claims
	txn.Guards = append([]store.Guard{{Key: full}}, txn.Guards...)
	txn.Puts = append([]store.Put{{Key: full, Value: a.next.data, TTL: a.s.timeToLive(a.q.Served.Kind)}}, txn.Puts...)
	e, r, err := a.commit(ctx, key, txn)
	if e == nil && err == nil && r.Current[0] == nil {
		e = &cache.Entry{}
	}
	return e, err == nil && !r.Done, err
}

// commit writes the encoded object to the store under a key. If it returns neither an entry nor an error, a guard
// failed.
func (a *attempt) commit(ctx context.Context, key string, txn store.Txn) (*cache.Entry, store.Result, error) {
	writing := a.s.config.Cache.BeginWrite(a.q.StoredKind(), key, a.next.data, a.next.stored)
	r, err := a.s.config.Store.Commit(ctx, txn)
	if err != nil {
		writing.Failed()
		return nil, r, &uncertainError{request.UnavailableError(err)}
	}
	if !r.Done {
		writing.Failed()
		return nil, r, nil
	}
	e, err := writing.Done(r.Revision)
	return e, r, err
}

// uncertainError means that a write was handed to the store, and that its outcome is unknown. The write must not be
// checked again against the stored object, because that may be the result of this very write.
type uncertainError struct{ err error }

func (u *uncertainError) Error() string { return u.err.Error() }
func (u *uncertainError) Unwrap() error { return u.err }

// put writes the encoded object over the live one. It deletes the object if its last finalizer is gone.
func (a *attempt) put(ctx context.Context) (e *cache.Entry, lost bool, err error) {
	k := a.q.StoredKind()
	full := a.s.config.Cache.Key(k, a.live.entry.Key)
	txn := a.claims
	txn.Guards = append([]store.Guard{{Key: full, Revision: a.live.entry.Revision}}, txn.Guards...)
	switch {
	case canRemove(a.next.obj):
		a.releaseAddresses(&txn)
		txn.Deletes = append(txn.Deletes, full)
	case !a.live.entry.Stale && (bytes.Equal(a.next.data, a.live.entry.JSON()) ||
		changesOnlyTimes(a.q.Served.Kind, a.live, a.next)):
		return a.live.entry, false, nil
	default:
		put := store.Put{Key: full, Value: a.next.data, TTL: a.s.timeToLive(a.q.Served.Kind)}
		txn.Puts = append([]store.Put{put}, txn.Puts...)
	}
	if a.w.dryRun {
		e, err = cache.NewEntry(k, a.live.entry.Key, a.next.data, a.live.entry.Revision, a.next.stored)
		return e, false, err
	}
	if len(txn.Puts) == 0 || txn.Puts[0].Key != full {
		return a.commitDeletion(ctx, txn)
	}
	e, r, err := a.commit(ctx, a.live.entry.Key, txn)
	return e, err == nil && !r.Done, err
}

// commitDeletion commits the deletion of the live object, and returns the object's last state.
func (a *attempt) commitDeletion(ctx context.Context, txn store.Txn) (e *cache.Entry, lost bool, err error) {
	r, err := a.s.config.Store.Commit(ctx, txn)
	if err != nil {
		return nil, false, &uncertainError{request.UnavailableError(err)}
	}
	if !r.Done {
		return nil, true, nil
	}
	e, err = cache.NewEntry(a.q.StoredKind(), a.live.entry.Key, a.next.data, r.Revision, a.next.stored)
	return e, false, err
}

// changesOnlyTimes reports whether only the timestamps of managed fields changed. Such a write is skipped.
func changesOnlyTimes(k *kinds.Kind, live liveState, next nextState) bool {
	// This cheap check rules out most writes. Timestamps all have the same length, so a different size means a real
	// change, and so does a byte that differs outside a timestamp.
	if len(next.data) != live.entry.Size() || next.obj == nil || live.obj == nil {
		return false
	}
	const name, maximum = `"time":"`, len(`"time":"2006-01-02T15:04:05Z`)
	stored := live.entry.JSON()
	for i := range next.data {
		if next.data[i] != stored[i] && !bytes.Contains(next.data[max(0, i-maximum):i], []byte(name)) {
			return false
		}
	}
	after, before := next.obj.DeepCopyObject(), live.obj.DeepCopyObject()
	for _, o := range []runtime.Object{after, before} {
		m, err := meta.Accessor(o)
		if err != nil {
			return false
		}
		m.SetManagedFields(nil)
		m.SetResourceVersion("")
		o.GetObjectKind().SetGroupVersionKind(k.GVK)
	}
	return value.Same(after, before)
}
