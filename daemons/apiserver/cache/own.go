package cache

import (
	"bytes"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/kinds"
)

// maxOwn is how many pending writes of this server are remembered.
const maxOwn = 1024

// own remembers the objects that this server is writing, until the store's watch returns them. Then they need no
// decoding, and the encodings made for the writer's response are shared with all readers.
type own struct {
	mu     sync.Mutex
	writes map[string]*Write // by store key
}

// Write is an object on its way into the store. The watch may return it before the writer learns of its success.
// Whichever is first creates the entry.
type Write struct {
	own  *own
	full string // store key
	kind *kinds.Kind
	key  string
	data []byte

	mu    sync.Mutex
	obj   runtime.Object // nil once entry has it
	entry *Entry
}

// Writing announces that an object, encoded as data, is about to be written. The writer must not change the object
// until it has called Failed; after Done it must never change it.
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

// Done returns the entry of the written object, at its revision. Readers see it only once the watch has returned it.
func (w *Write) Done(revision int64) (*Entry, error) { return w.at(revision) }

// Failed reports that nothing was written, or that the outcome is unknown.
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
	// The object belongs to the previous entry if another server had written the same bytes.
	e, err := NewEntry(w.kind, w.key, w.data, revision, w.obj)
	if err != nil {
		return nil, err
	}
	w.entry, w.obj = e, nil
	return e, nil
}

// take returns the entry of a stored value, if this server wrote it.
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
		return nil // the writer gets the error
	}
	return e
}
