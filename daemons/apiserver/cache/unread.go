package cache

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// unread are the objects of a resource whose values the store has and that cannot be read: what encrypts them is not to
// be had, or what is stored is no object. They are neither missing nor as they were before.
type unread struct {
	some atomic.Bool // whether there are any: most of the time there are none
	mu   sync.RWMutex
	keys map[string]error
}

// with adds to a map that may be none.
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

// follow takes in changes that readers see by now.
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

// note takes in a change of a key: nil when it can be read, or is gone.
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

// Unread says why an object cannot be read, or one of those whose keys begin with a prefix that ends in a slash or
// is empty.
func (r *Resource) Unread(key string) error {
	if all := r.AllUnread(key, 1); len(all) > 0 {
		return all[0]
	}
	return nil
}

// AllUnread is Unread of the first of them, in no order, and at most so many.
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

// CountUnread is how many there are, and how many of them could not be read for a reason that will not pass by itself.
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

// undecodable says, and returns, that what the store holds of an object is none.
func (r *Resource) undecodable(key string, revision int64, err error) error {
	err = &store.Unreadable{Key: r.prefix + key, Revision: revision, What: store.NotDecodable, Err: err}
	r.tell(err)
	return err
}

// tell logs that what the store holds cannot be read, and does so for good: what will pass is counted, and may be
// everything.
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

// spoiled returns why an entry cannot be decoded, and has its resource count it as unread if it still is what there is.
func (e *Entry) spoiled(err error) error {
	r := e.home
	if r == nil {
		return &store.Unreadable{Key: e.Key, Revision: e.Revision, What: store.NotDecodable, Err: err}
	}
	r.mu.Lock() // what comes after it is noted after this
	defer r.mu.Unlock()
	if now, there := r.tree.Get(e); there && now == e {
		if !r.unread.has(e.Key) {
			r.unread.note(e.Key, r.undecodable(e.Key, e.Revision, err))
		}
		return r.unread.of(e.Key)
	}
	return &store.Unreadable{Key: r.prefix + e.Key, Revision: e.Revision, What: store.NotDecodable, Err: err}
}

// named is an entry of which nothing is known but its name.
func named(k *kinds.Kind, key string) *Entry {
	e := &Entry{Key: key, Name: key, kind: k}
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		e.Namespace, e.Name = namespace, name
	}
	return e
}
