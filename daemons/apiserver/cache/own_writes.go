package cache

import (
	"bytes"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/kinds"
)

// maxOwnWrites is how many pending writes of this server are remembered.
const maxOwnWrites = 1024

// ownWrites remembers the objects that this server is writing, until the store's watch returns them. Then they need no
// decoding, and the encodings made for the writer's response are shared with all readers.
type ownWrites struct {
	mu     sync.Mutex
	writes map[string]*Write // by store key
}

// Write is an object on its way into the store. The watch may return it before the writer learns of its success.
// Whichever is first creates the entry.
type Write struct {
	owner    *ownWrites
	storeKey string // store key
	kind     *kinds.Kind
	key      string
	data     []byte

	mu    sync.Mutex
	obj   runtime.Object // nil once entry has it
	entry *Entry
}

// BeginWrite announces that an object, encoded as data, is about to be written. The writer must not change the object
// until it has called Failed; after Done it must never change it.
func (c *Cache) BeginWrite(k *kinds.Kind, key string, data []byte, obj runtime.Object) *Write {
	w := &Write{owner: &c.ownWrites, storeKey: c.Key(k, key), kind: k, key: key, data: data, obj: obj}
	c.ownWrites.mu.Lock()
	defer c.ownWrites.mu.Unlock()
	if c.ownWrites.writes == nil || len(c.ownWrites.writes) >= maxOwnWrites {
		c.ownWrites.writes = map[string]*Write{}
	}
	c.ownWrites.writes[w.storeKey] = w
	return w
}

// Done returns the entry of the written object, at its revision. Readers see it only once the watch has returned it.
func (w *Write) Done(revision int64) (*Entry, error) { return w.entryAt(revision) }

// Failed reports that nothing was written, or that the outcome is unknown.
func (w *Write) Failed() {
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	if w.owner.writes[w.storeKey] == w {
		delete(w.owner.writes, w.storeKey)
	}
}

func (w *Write) entryAt(revision int64) (*Entry, error) {
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

// takeEntry returns the entry of a stored value, if this server wrote it.
func (o *ownWrites) takeEntry(k *kinds.Kind, key string, value []byte, revision int64) *Entry {
	o.mu.Lock()
	w := o.writes[key]
	if w == nil || w.kind != k || !bytes.Equal(w.data, value) {
		o.mu.Unlock()
		return nil
	}
	delete(o.writes, key)
	o.mu.Unlock()
	e, err := w.entryAt(revision)
	if err != nil {
		return nil // the writer gets the error
	}
	return e
}
