package cache

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// unread are the objects of a resource whose values the store has and cannot give at present, since a plugin that keeps their
// key does not answer. They are neither missing nor as they were before.
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

// Unread says why an object cannot be read at present, or one of those whose keys begin with a prefix that ends in a slash or
// is empty.
func (r *Resource) Unread(key string) error {
	u := &r.unread
	if !u.some.Load() {
		return nil
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	if key != "" && !strings.HasSuffix(key, "/") {
		return u.keys[key]
	}
	for k, err := range u.keys {
		if strings.HasPrefix(k, key) {
			return fmt.Errorf("%s %q: %w", r.Kind.GR(), k, err)
		}
	}
	return nil
}
