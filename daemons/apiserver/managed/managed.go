// Package managed remembers what the account of managed fields came to. Who owns which fields after a write depends on
// which fields there are, on the keys of list items, on which values differ from those before, and on the
// account before, and hardly ever on the values themselves. Objects of one kind are written alike
// over and over: what was worked out once, through the kind's schema, holds for all writes that are
// alike in all that. The working out is apimachinery's business.
package managed

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Memo is what is remembered. Its zero value is ready.
type Memo struct {
	mu    sync.Mutex
	young map[Key]outcome
	old   map[Key]outcome // what was young before; it is forgotten with the next generation
}

// generation bounds how many outcomes are young, and how many old.
const generation = 512

// Key is the digest of all that an outcome depends on.
type Key [sha256.Size]byte

// outcome is an account whose times are those of entries before, or the time of the write.
type outcome []entry

type entry struct {
	metav1.ManagedFieldsEntry
	from int // place in the account before whose time this has; -1: it is of now
}

// Write is what an outcome depends on.
type Write struct {
	Keys                       Keys
	Kind, Subresource, Manager string
	Before                     []metav1.ManagedFieldsEntry
	Live                       []byte // JSON of the object before; nil: there was none
	Next                       []byte // JSON of the object after, without its account
}

// Keys are the names, quoted, by which items of lists are told apart anywhere in a schema.
type Keys map[string]bool

// KeysOf returns those of a schema.
func KeysOf(s *schema.Schema) Keys {
	keys := Keys{}
	for _, t := range s.Types {
		keys.add(t.Atom)
	}
	return keys
}

func (k Keys) add(a schema.Atom) {
	if a.List != nil {
		for _, name := range a.List.Keys {
			k[strconv.Quote(name)] = true
		}
		k.add(a.List.ElementType.Inlined)
	}
	if a.Map != nil {
		for _, f := range a.Map.Fields {
			k.add(f.Type.Inlined)
		}
		k.add(a.Map.ElementType.Inlined)
	}
}

// mostManagers is how many entries an account may have: where there are more, some are merged by their age.
const mostManagers = 8

// Key returns the write's key; false if its outcome cannot be foretold from it.
func (w Write) Key() (Key, bool) {
	if len(w.Before) > mostManagers {
		return Key{}, false
	}
	c := comparisons.Get().(*comparison)
	defer comparisons.Put(c)
	c.reset()
	for _, text := range []string{w.Kind, w.Subresource, w.Manager} {
		c.text(text)
	}
	for i := range w.Before {
		b := &w.Before[i]
		for _, text := range []string{b.Manager, string(b.Operation), b.APIVersion, b.FieldsType, b.Subresource} {
			c.text(text)
		}
		if b.FieldsV1 != nil {
			c.key = append(c.key, b.FieldsV1.Raw...)
		}
		c.key = append(c.key, 0)
	}
	if !c.compare(w.Keys, w.Live, w.Next) {
		return Key{}, false
	}
	return sha256.Sum256(c.key), true
}

// Get returns the account after a write that is known: a new slice, whose sets of fields are shared.
func (m *Memo) Get(key Key, before []metav1.ManagedFieldsEntry, now time.Time) ([]metav1.ManagedFieldsEntry, bool) {
	m.mu.Lock()
	known, ok := m.young[key]
	if !ok {
		if known, ok = m.old[key]; ok {
			m.put(key, known)
		}
	}
	m.mu.Unlock()
	if !ok || len(known) == 0 {
		return nil, ok
	}
	after := make([]metav1.ManagedFieldsEntry, len(known))
	for i, e := range known {
		after[i] = e.ManagedFieldsEntry
		if e.from >= 0 {
			after[i].Time = before[e.from].Time
		} else {
			after[i].Time = &metav1.Time{Time: now.UTC()}
		}
	}
	slices.SortFunc(after, order)
	return after, true
}

// Put remembers the account after a write, of which those times are of before that are the very same.
func (m *Memo) Put(key Key, before, after []metav1.ManagedFieldsEntry) {
	known := make(outcome, len(after))
	for i, e := range after {
		from := slices.IndexFunc(before, func(b metav1.ManagedFieldsEntry) bool { return b.Time == e.Time })
		if from >= 0 && e.Time == nil {
			return // an account that was written by hand
		}
		e.Time = nil
		known[i] = entry{e, from}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, known)
}

func (m *Memo) put(key Key, known outcome) {
	if m.young == nil || len(m.young) >= generation {
		m.old, m.young = m.young, make(map[Key]outcome, generation)
	}
	m.young[key] = known
}

// order is how an account is sorted: by operation, time in seconds, manager, version and subresource.
func order(a, b metav1.ManagedFieldsEntry) int {
	if c := strings.Compare(string(a.Operation), string(b.Operation)); c != 0 {
		return c
	}
	if x, y := seconds(a.Time), seconds(b.Time); x != y {
		if x < y {
			return -1
		}
		return 1
	}
	if c := strings.Compare(a.Manager, b.Manager); c != 0 {
		return c
	}
	if c := strings.Compare(a.APIVersion, b.APIVersion); c != 0 {
		return c
	}
	return strings.Compare(a.Subresource, b.Subresource)
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// Same says whether two accounts are the same but for their times.
func Same(a, b []metav1.ManagedFieldsEntry) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.ManagedFieldsEntry) bool {
		return x.Manager == y.Manager && x.Operation == y.Operation && x.APIVersion == y.APIVersion &&
			x.FieldsType == y.FieldsType &&
			x.Subresource == y.Subresource && (x.FieldsV1 == nil) == (y.FieldsV1 == nil) &&
			(x.FieldsV1 == nil || bytes.Equal(x.FieldsV1.Raw, y.FieldsV1.Raw))
	})
}
