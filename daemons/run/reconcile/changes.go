package reconcile

import "sync"

// Signal wakes a loop. Several calls of Wake before the loop reacts wake it once.
type Signal chan struct{}

// NewSignal returns a signal.
func NewSignal() Signal { return make(Signal, 1) }

// Wake wakes the loop. It never blocks.
func (s Signal) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Keys are the keys of objects whose changes a loop has not taken yet. Their number is limited by the number of
// objects. All methods are safe for concurrent use.
type Keys struct {
	changes Signal

	mu   sync.Mutex
	keys map[string]bool
}

// NewKeys returns an empty set of keys that wakes a loop by changes.
func NewKeys(changes Signal) *Keys {
	return &Keys{changes: changes, keys: map[string]bool{}}
}

// Add adds the key of a changed object and wakes the loop.
func (k *Keys) Add(key string) {
	k.Retry(key)
	k.changes.Wake()
}

// Retry adds the key of an object that the loop could not use. It does not wake the loop, which runs again because its
// Sync returns an error.
func (k *Keys) Retry(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[key] = true
}

// Take returns all keys and removes them from the set. The caller may change the returned map.
func (k *Keys) Take() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	taken := k.keys
	k.keys = map[string]bool{}
	return taken
}
