package write

import (
	"bytes"
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
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
		if why := (*store.Unreadable)(nil); errors.As(err, &why) {
			err = why.Err
		}
		return nil, &store.Unreadable{Key: kv.Key, Revision: kv.Revision, Problem: store.NotDecodable, Err: err}
	}
	return e, nil
}

// insertNew writes the encoded object to the store, unless its key, or something that it claims, exists already. If
// taken is true and e is not nil, a claim exists already, not the object's key.
func (w *write) insertNew(ctx context.Context) (e *cache.Entry, taken bool, err error) {
	k, key := w.q.StoredKind(), w.key()
	if w.dryRun {
		there, err := w.s.readStored(ctx, w.q, key)
		if err != nil || there != nil {
			return nil, there != nil, err
		}
		e, err = cache.NewEntry(k, key, w.data, 0, w.stored)
		return e, false, err
	}
	full := w.s.config.Cache.Key(k, key)
	txn := w.claims
	txn.Guards = append([]store.Guard{{Key: full}}, txn.Guards...)
	txn.Puts = append([]store.Put{{Key: full, Value: w.data, TTL: w.ttl()}}, txn.Puts...)
	e, r, err := w.commit(ctx, key, txn)
	if e == nil && err == nil && r.Current[0] == nil {
		e = &cache.Entry{}
	}
	return e, err == nil && !r.Done, err
}

// commit writes the encoded object to the store under a key. If it returns neither an entry nor an error, a guard
// failed.
func (w *write) commit(ctx context.Context, key string, txn store.Txn) (*cache.Entry, store.Result, error) {
	writing := w.s.config.Cache.BeginWrite(w.q.StoredKind(), key, w.data, w.stored)
	r, err := w.s.config.Store.Commit(ctx, txn)
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
func (w *write) put(ctx context.Context) (e *cache.Entry, lost bool, err error) {
	k := w.q.StoredKind()
	full := w.s.config.Cache.Key(k, w.live.Key)
	txn := w.claims
	txn.Guards = append([]store.Guard{{Key: full, Revision: w.live.Revision}}, txn.Guards...)
	switch {
	case w.canRemove():
		w.releaseAddresses(&txn)
		txn.Deletes = append(txn.Deletes, full)
	case !w.live.Stale && (bytes.Equal(w.data, w.live.JSON()) || w.changesOnlyTimes()):
		return w.live, false, nil
	default:
		txn.Puts = append([]store.Put{{Key: full, Value: w.data, TTL: w.ttl()}}, txn.Puts...)
	}
	if w.dryRun {
		e, err = cache.NewEntry(k, w.live.Key, w.data, w.live.Revision, w.stored)
		return e, false, err
	}
	if len(txn.Puts) == 0 || txn.Puts[0].Key != full {
		return w.commitDeletion(ctx, txn)
	}
	e, r, err := w.commit(ctx, w.live.Key, txn)
	return e, err == nil && !r.Done, err
}

// commitDeletion commits the deletion of the live object, and returns the object's last state.
func (w *write) commitDeletion(ctx context.Context, txn store.Txn) (e *cache.Entry, lost bool, err error) {
	r, err := w.s.config.Store.Commit(ctx, txn)
	if err != nil {
		return nil, false, &uncertainError{request.UnavailableError(err)}
	}
	if !r.Done {
		return nil, true, nil
	}
	e, err = cache.NewEntry(w.q.StoredKind(), w.live.Key, w.data, r.Revision, w.stored)
	return e, false, err
}

// changesOnlyTimes reports whether only the timestamps of managed fields changed. Such a write is skipped.
func (w *write) changesOnlyTimes() bool {
	// This cheap check rules out most writes. Timestamps all have the same length, so a different size means a real
	// change, and so does a byte that differs outside a timestamp.
	if len(w.data) != w.live.Size() || w.obj == nil || w.old == nil {
		return false
	}
	const name, most = `"time":"`, len(`"time":"2006-01-02T15:04:05Z`)
	stored := w.live.JSON()
	for i := range w.data {
		if w.data[i] != stored[i] && !bytes.Contains(w.data[max(0, i-most):i], []byte(name)) {
			return false
		}
	}
	is, was := w.obj.DeepCopyObject(), w.old.DeepCopyObject()
	for _, o := range []runtime.Object{is, was} {
		m, err := meta.Accessor(o)
		if err != nil {
			return false
		}
		m.SetManagedFields(nil)
		m.SetResourceVersion("")
		o.GetObjectKind().SetGroupVersionKind(w.q.Served.GVK)
	}
	return value.Same(is, was)
}
