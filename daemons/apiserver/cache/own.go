package cache

import (
	"bytes"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/kinds"
)

// maxOwn bounds how many of the server's own writes are remembered.
const maxOwn = 1024

// own remembers what this server is writing, until the store's watch brings it back: it need not be decoded
// again then, and what was made of it for the writer's answer serves all who read it.
type own struct {
	mu     sync.Mutex
	writes map[string]*Write // by store key
}

// Write is an object on its way into the store. The watch may bring it back before its writer hears that it was done:
// who is first makes the entry.
type Write struct {
	own  *own
	full string // store key
	kind *kinds.Kind
	key  string
	data []byte

	mu    sync.Mutex
	obj   runtime.Object // nil when an entry has it
	entry *Entry
}

// Writing tells the cache of an object that is about to be written, encoded as data. The writer must not change the
// object until it has called Done or Failed, and not after Done.
func (c *Cache) Writing(k *kinds.Kind, key string, data []byte, obj runtime.Object) *Write {
	w := &Write{own: &c.own, full: c.Key(k, key), kind: k, key: key, data: data, obj: obj}
	c.own.mu.Lock()
	defer c.own.mu.Unlock()
	if c.own.writes == nil || len(c.own.writes) >= maxOwn {
		c.own.writes = map[string]*Write{}
	}
	c.own.writes[w.full] = w
	return w
}

// Done returns the entry of what was written, at its revision. The watch alone says when it is to be seen.
func (w *Write) Done(revision int64) (*Entry, error) { return w.at(revision) }

// Failed says that nothing was written, or that it is not known.
func (w *Write) Failed() {
	w.own.mu.Lock()
	defer w.own.mu.Unlock()
	if w.own.writes[w.full] == w {
		delete(w.own.writes, w.full)
	}
}

func (w *Write) at(revision int64) (*Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entry != nil && w.entry.Revision == revision {
		return w.entry, nil
	}
	// Somebody else may have written the very same before: then the object is in that entry.
	e, err := NewEntry(w.kind, w.key, w.data, revision, w.obj)
	if err != nil {
		return nil, err
	}
	w.entry, w.obj = e, nil
	return e, nil
}

// take returns the entry of what the store has at a key, if it is what this server writes there.
func (o *own) take(k *kinds.Kind, key string, value []byte, revision int64) *Entry {
	o.mu.Lock()
	w := o.writes[key]
	if w == nil || w.kind != k || !bytes.Equal(w.data, value) {
		o.mu.Unlock()
		return nil
	}
	delete(o.writes, key)
	o.mu.Unlock()
	e, err := w.at(revision)
	if err != nil {
		return nil // the writer is told why
	}
	return e
}
