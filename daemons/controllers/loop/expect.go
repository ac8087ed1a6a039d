package loop

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Expectations keeps a controller from acting on a cache that has not yet seen the
// controller's own writes: after creating or deleting dependents of a key, it waits
// until the watch has shown them. Expectations lapse by themselves, so that a lost
// event costs time and no more.
type Expectations struct {
	Now func() time.Time

	mu   sync.Mutex
	keys map[string]*expected
}

type expected struct {
	creates int
	deletes sets.Set[string] // UIDs
	since   time.Time
}

const expectationsLapse = 5 * time.Minute

// Expect adds to what key waits for: a number of dependents to appear, and some UIDs to go.
func (e *Expectations) Expect(key string, creates int, deletes ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.keys == nil {
		e.keys = map[string]*expected{}
	}
	x := e.keys[key]
	if x == nil {
		x = &expected{deletes: sets.New[string]()}
		e.keys[key] = x
	}
	x.creates += creates
	x.deletes.Insert(deletes...)
	x.since = e.Now()
}

// Created says that a dependent of key appeared, or that creating one failed.
func (e *Expectations) Created(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.keys[key]; x != nil && x.creates > 0 {
		x.creates--
	}
}

// Deleted says that a dependent of key went, or that deleting it failed.
func (e *Expectations) Deleted(key, uid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.keys[key]; x != nil {
		x.deletes.Delete(uid)
	}
}

// Met says whether all that key waits for has been seen, or has lapsed.
func (e *Expectations) Met(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.keys[key]
	if x == nil {
		return true
	}
	if x.creates <= 0 && x.deletes.Len() == 0 || e.Now().Sub(x.since) > expectationsLapse {
		delete(e.keys, key)
		return true
	}
	return false
}

// Forget drops what key waits for.
func (e *Expectations) Forget(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.keys, key)
}
