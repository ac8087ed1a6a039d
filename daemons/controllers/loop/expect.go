package loop

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Expectations prevents a controller from acting on a cache that does not show the controller's own writes yet. After
// creating or deleting dependents of a key, the controller waits until the watch has shown them. Expectations expire,
// so a lost event only costs time.
type Expectations struct {
	Now func() time.Time

	mu   sync.Mutex
	keys map[string]*expectation
}

type expectation struct {
	creates int
	deletes sets.Set[string] // UIDs
	since   time.Time
}

const expectationTimeout = 5 * time.Minute

// Expect adds to what key waits for: the creation of a number of dependents, and the deletion of some UIDs.
func (e *Expectations) Expect(key string, creates int, deletes ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.keys == nil {
		e.keys = map[string]*expectation{}
	}
	x := e.keys[key]
	if x == nil {
		x = &expectation{deletes: sets.New[string]()}
		e.keys[key] = x
	}
	x.creates += creates
	x.deletes.Insert(deletes...)
	x.since = e.Now()
}

// Created records that a dependent of key appeared, or that creating it failed.
func (e *Expectations) Created(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.keys[key]; x != nil && x.creates > 0 {
		x.creates--
	}
}

// Deleted records that a dependent of key was deleted, or that deleting it failed.
func (e *Expectations) Deleted(key, uid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.keys[key]; x != nil {
		x.deletes.Delete(uid)
	}
}

// IsMet reports whether everything that key waits for has been observed or has expired.
func (e *Expectations) IsMet(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.keys[key]
	if x == nil {
		return true
	}
	if x.creates <= 0 && x.deletes.Len() == 0 || e.Now().Sub(x.since) > expectationTimeout {
		delete(e.keys, key)
		return true
	}
	return false
}

// Delete removes the expectations of key.
func (e *Expectations) Delete(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.keys, key)
}
