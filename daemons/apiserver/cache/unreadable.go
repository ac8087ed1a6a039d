package cache

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// unreadableKeys holds the objects of a resource that are stored but cannot be read, because the encryption key is
// unavailable or the value is invalid. They are neither missing nor as they were before.
type unreadableKeys struct {
	isNonEmpty atomic.Bool // whether there are any; usually there are none
	mu         sync.RWMutex
	keys       map[string]error
}

// withError adds an entry to a map, which may be nil, and returns the map.
func withError(m map[string]error, key string, err error) map[string]error {
	if m == nil {
		m = map[string]error{}
	}
	m[key] = err
	return m
}

func (u *unreadableKeys) add(keys map[string]error) {
	for key, err := range keys {
		u.set(key, err)
	}
}

// apply records changes that readers can see already.
func (u *unreadableKeys) apply(changes []resourceChange) {
	if !u.isNonEmpty.Load() {
		return
	}
	for _, c := range changes {
		u.set(c.key, c.err)
	}
}

func (u *unreadableKeys) replace(keys map[string]error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keys = keys
	u.isNonEmpty.Store(len(keys) > 0)
}

// set records whether a key can be read. err is nil if it can, or if the object is gone.
func (u *unreadableKeys) set(key string, err error) {
	if err == nil && !u.isNonEmpty.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		delete(u.keys, key)
	} else {
		u.keys = withError(u.keys, key, err)
	}
	u.isNonEmpty.Store(len(u.keys) > 0)
}

func (u *unreadableKeys) contains(key string) bool {
	if !u.isNonEmpty.Load() {
		return false
	}
	return u.errorOf(key) != nil
}

func (u *unreadableKeys) errorOf(key string) error {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return u.keys[key]
}

// ReadError returns why an object cannot be read. If key is empty or ends in a slash, it is a prefix, and
// ReadError returns the error of one object with that prefix.
func (r *Resource) ReadError(key string) error {
	if all := r.ReadErrors(key, 1); len(all) > 0 {
		return all[0]
	}
	return nil
}

// ReadErrors is like ReadError, but returns up to maximum errors, unordered.
func (r *Resource) ReadErrors(key string, maximum int) []error {
	u := &r.unreadable
	if !u.isNonEmpty.Load() {
		return nil
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	if key != "" && !strings.HasSuffix(key, "/") {
		if err := u.keys[key]; err != nil {
			return []error{err}
		}
		return nil
	}
	var all []error
	for k, err := range u.keys {
		if strings.HasPrefix(k, key) {
			if all = append(all, err); len(all) == maximum {
				break
			}
		}
	}
	return all
}

// CountUnreadable returns the number of unreadable objects, and how many of them will not become readable by
// themselves.
func (r *Resource) CountUnreadable() (all, lasting int) {
	u := &r.unreadable
	if !u.isNonEmpty.Load() {
		return 0, 0
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	for _, err := range u.keys {
		all++
		if unreadable := (*store.Unreadable)(nil); !errors.As(err, &unreadable) || !unreadable.Temporary {
			lasting++
		}
	}
	return all, lasting
}

// decodeError logs and returns the error for a stored value that cannot be decoded.
func (r *Resource) decodeError(key string, revision int64, err error) error {
	err = &store.Unreadable{Key: r.prefix + key, Revision: revision, Problem: store.NotDecodable, Err: err}
	r.logUnreadable(err)
	return err
}

// logUnreadable logs a permanent read error. Temporary ones are only counted, because they may concern all objects.
func (r *Resource) logUnreadable(err error) {
	if unreadable := (*store.Unreadable)(nil); errors.As(err, &unreadable) && !unreadable.Temporary {
		r.logger.Error("a stored object cannot be read: restore it or its key, or delete it with "+
			"ignoreStoreReadErrorWithClusterBreakingPotential", "err", err)
	}
}

// decodeFailed returns the error for an entry that cannot be decoded. If the entry is current, spoiled marks it as
// unread.
func (e *Entry) decodeFailed(err error) error {
	r := e.resource
	if r == nil {
		return &store.Unreadable{Key: e.Key, Revision: e.Revision, Problem: store.NotDecodable, Err: err}
	}
	r.mu.Lock() // so that a later change of the object is recorded after this
	defer r.mu.Unlock()
	if now, ok := r.objects.byKey.Get(e); ok && now == e {
		if !r.unreadable.contains(e.Key) {
			r.unreadable.set(e.Key, r.decodeError(e.Key, e.Revision, err))
		}
		return r.unreadable.errorOf(e.Key)
	}
	return &store.Unreadable{Key: r.prefix + e.Key, Revision: e.Revision, Problem: store.NotDecodable, Err: err}
}

// nameOnlyEntry returns an entry with only a name.
func nameOnlyEntry(k *kinds.Kind, key string) *Entry {
	e := &Entry{Key: key, Name: key, kind: k}
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		e.Namespace, e.Name = namespace, name
	}
	return e
}
