package cache

import (
	"slices"
	"strings"
	"sync"
)

// Names are the keys that the store has under one word below the cache's prefix, which no kind is stored under: of
// them it is of interest alone that they are there. The watch that keeps objects current keeps them, too.
type Names struct {
	mu  sync.RWMutex
	set map[string]struct{}
}

// Names has the keys under a word kept. It must be called before Run.
func (c *Cache) Names(word string) *Names {
	n := &Names{set: map[string]struct{}{}}
	c.names[word] = n
	return n
}

// All returns what comes after the word in the keys that there are, in order.
func (n *Names) All() []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := make([]string, 0, len(n.set))
	for name := range n.set {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func (n *Names) note(name string, there bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if there {
		n.set[name] = struct{}{}
	} else {
		delete(n.set, name)
	}
}

// replace forgets all names but those given.
func (n *Names) replace(names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set = map[string]struct{}{}
	for _, name := range names {
		n.set[name] = struct{}{}
	}
}

// named splits the key of what is no object into whose name it is and the name; nil if nobody wants to know.
func (c *Cache) named(key string) (*Names, string) {
	rest, ok := strings.CutPrefix(key, c.prefix)
	if !ok || len(c.names) == 0 {
		return nil, ""
	}
	word, name, _ := strings.Cut(rest, "/")
	return c.names[word], name
}
