package cache

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// unread holds the objects of a resource that are stored but cannot be read, because the encryption key is unavailable
// or the value is invalid. They are neither missing nor as they were before.
type unread struct {
	some atomic.Bool // whether there are any; usually there are none
	mu   sync.RWMutex
	keys map[string]error
}

// with adds an entry to a map, which may be nil, and returns the map.
func with(m map[string]error, key string, err error) map[string]error {
	if m == nil {
		m = map[string]error{}
	}
	m[key] = err
	return m
}

func (u *unread) add(keys map[string]error) {
	for key, err := range keys {
		u.note(key, err)
	}
}

// follow records changes that readers can see already.
func (u *unread) follow(changes []change) {
	if !u.some.Load() {
		return
	}
	for _, c := range changes {
		u.note(c.key, c.err)
	}
}

func (u *unread) replace(keys map[string]error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keys = keys
	u.some.Store(len(keys) > 0)
}

// note records whether a key can be read. err is nil if it can, or if the object is gone.
func (u *unread) note(key string, err error) {
	if err == nil && !u.some.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		delete(u.keys, key)
	} else {
		u.keys = with(u.keys, key, err)
	}
	u.some.Store(len(u.keys) > 0)
}

func (u *unread) has(key string) bool {
	if !u.some.Load() {
		return false
	}
	return u.of(key) != nil
}

func (u *unread) of(key string) error {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return u.keys[key]
}

// Unread returns why an object cannot be read. If key is empty or ends in a slash, it is a prefix, and Unread returns
// the error of one object with that prefix.
func (r *Resource) Unread(key string) error {
	if all := r.AllUnread(key, 1); len(all) > 0 {
		return all[0]
	}
	return nil
}

// AllUnread is like Unread, but returns up to most errors, unordered.
func (r *Resource) AllUnread(key string, most int) []error {
	u := &r.unread
	if !u.some.Load() {
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
			if all = append(all, err); len(all) == most {
				break
			}
		}
	}
	return all
}

// CountUnread returns the number of unreadable objects, and how many of them will not become readable by themselves.
func (r *Resource) CountUnread() (all, lasting int) {
	u := &r.unread
	if !u.some.Load() {
		return 0, 0
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	for _, err := range u.keys {
		all++
		if why := (*store.Unreadable)(nil); !errors.As(err, &why) || !why.Passing {
			lasting++
		}
	}
	return all, lasting
}

// undecodable logs and returns the error for a stored value that cannot be decoded.
func (r *Resource) undecodable(key string, revision int64, err error) error {
	err = &store.Unreadable{Key: r.prefix + key, Revision: revision, What: store.NotDecodable, Err: err}
	r.tell(err)
	return err
}

// tell logs a permanent read error. Temporary ones are only counted, because they may concern all objects.
func (r *Resource) tell(err error) {
	if why := (*store.Unreadable)(nil); errors.As(err, &why) && !why.Passing {
		r.logger.Error(
			"a stored object cannot be read: restore it or its key, or delete it with "+
				"ignoreStoreReadErrorWithClusterBreakingPotential",
			"err",
			err,
		)
	}
}

// spoiled returns the error for an entry that cannot be decoded. If the entry is current, spoiled marks it as unread.
func (e *Entry) spoiled(err error) error {
	r := e.home
	if r == nil {
		return &store.Unreadable{Key: e.Key, Revision: e.Revision, What: store.NotDecodable, Err: err}
	}
	r.mu.Lock() // so that a later change of the object is recorded after this
	defer r.mu.Unlock()
	if now, there := r.tree.Get(e); there && now == e {
		if !r.unread.has(e.Key) {
			r.unread.note(e.Key, r.undecodable(e.Key, e.Revision, err))
		}
		return r.unread.of(e.Key)
	}
	return &store.Unreadable{Key: r.prefix + e.Key, Revision: e.Revision, What: store.NotDecodable, Err: err}
}

// named returns an entry with only a name.
func named(k *kinds.Kind, key string) *Entry {
	e := &Entry{Key: key, Name: key, kind: k}
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		e.Namespace, e.Name = namespace, name
	}
	return e
}
