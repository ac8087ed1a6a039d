package cache

import (
	"slices"
	"strings"
	"sync"
)

// KeySet is the set of keys below one prefix that belongs to no kind. Only the existence of these keys matters. The
// watch that keeps objects current also keeps this set current.
type KeySet struct {
	mu  sync.RWMutex
	set map[string]struct{}
}

// KeySet returns the set of keys below the prefix word, and keeps it current. It must be called before Run.
func (c *Cache) KeySet(word string) *KeySet {
	n := &KeySet{set: map[string]struct{}{}}
	c.keySets[word] = n
	return n
}

// All returns the parts of the keys after the prefix, sorted.
func (n *KeySet) All() []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := make([]string, 0, len(n.set))
	for name := range n.set {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func (n *KeySet) setPresent(name string, exists bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if exists {
		n.set[name] = struct{}{}
	} else {
		delete(n.set, name)
	}
}

// replace replaces the whole set.
func (n *KeySet) replace(names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set = map[string]struct{}{}
	for _, name := range names {
		n.set[name] = struct{}{}
	}
}

// keySetOf splits a key into the set that it belongs to and the name in it. The set is nil for other keys.
func (c *Cache) keySetOf(key string) (*KeySet, string) {
	rest, ok := strings.CutPrefix(key, c.prefix)
	if !ok || len(c.keySets) == 0 {
		return nil, ""
	}
	word, name, _ := strings.Cut(rest, "/")
	return c.keySets[word], name
}
