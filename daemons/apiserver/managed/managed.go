// Package managed caches the results of computing managed fields. The owners of fields after a write depend on the
// managed fields before and on what the write changes. What counts is which fields exist, which keys list items have,
// and which values have changed. The values themselves hardly ever matter. Objects of one kind are often written in the
// same way. So a result that was computed once, with the kind's schema, applies to all writes that are equal in these
// respects. apimachinery computes the results.
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

// Memo is the cache. Its zero value is ready to use.
type Memo struct {
	mu      sync.Mutex
	current map[Key]outcome
	former  map[Key]outcome // the previous content of current; dropped when current is full again
}

// maxGeneration is the maximum number of results in current, and in former.
const maxGeneration = 512

// Key is the digest of everything that a result depends on.
type Key [sha256.Size]byte

// outcome is the resulting managed fields. Their times are those of earlier entries, or the time of the write.
type outcome []entry

type entry struct {
	metav1.ManagedFieldsEntry
	from int // index of the earlier entry with the same time; -1 for the time of the write
}

// Write holds everything that a result depends on.
type Write struct {
	Keys                       Keys
	Kind, Subresource, Manager string
	Before                     []metav1.ManagedFieldsEntry
	Live                       []byte // JSON of the object before; nil if there was none
	Next                       []byte // JSON of the object after, without managed fields
}

// Keys are the quoted names that identify the items of lists anywhere in a schema.
type Keys map[string]bool

// KeysOf returns the keys of a schema.
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

// maxManagers is the maximum number of entries. With more of them, apimachinery merges some by age.
const maxManagers = 8

// Key returns the write's key. It returns false if the result does not follow from it.
func (w Write) Key() (Key, bool) {
	if len(w.Before) > maxManagers {
		return Key{}, false
	}
	c := comparisons.Get().(*comparison)
	defer comparisons.Put(c)
	c.reset()
	for _, text := range []string{w.Kind, w.Subresource, w.Manager} {
		c.addText(text)
	}
	for i := range w.Before {
		b := &w.Before[i]
		for _, text := range []string{b.Manager, string(b.Operation), b.APIVersion, b.FieldsType, b.Subresource} {
			c.addText(text)
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

// Get returns the managed fields after a write with a cached result. The slice is new, but shares the field sets.
func (m *Memo) Get(key Key, before []metav1.ManagedFieldsEntry, now time.Time) ([]metav1.ManagedFieldsEntry, bool) {
	m.mu.Lock()
	cached, ok := m.current[key]
	if !ok {
		if cached, ok = m.former[key]; ok {
			m.put(key, cached)
		}
	}
	m.mu.Unlock()
	if !ok || len(cached) == 0 {
		return nil, ok
	}
	after := make([]metav1.ManagedFieldsEntry, len(cached))
	for i, e := range cached {
		after[i] = e.ManagedFieldsEntry
		if e.from >= 0 {
			after[i].Time = before[e.from].Time
		} else {
			after[i].Time = &metav1.Time{Time: now.UTC()}
		}
	}
	Sort(after)
	return after, true
}

// Put caches the managed fields after a write. A time is that of an earlier entry if it is the same pointer.
func (m *Memo) Put(key Key, before, after []metav1.ManagedFieldsEntry) {
	result := make(outcome, len(after))
	for i, e := range after {
		from := slices.IndexFunc(before, func(b metav1.ManagedFieldsEntry) bool { return b.Time == e.Time })
		if from >= 0 && e.Time == nil {
			return // managed fields that a client wrote
		}
		e.Time = nil
		result[i] = entry{e, from}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, result)
}

func (m *Memo) put(key Key, result outcome) {
	if m.current == nil || len(m.current) >= maxGeneration {
		m.former, m.current = m.current, make(map[Key]outcome, maxGeneration)
	}
	m.current[key] = result
}

// Sort sorts entries as managed fields are sorted.
func Sort(entries []metav1.ManagedFieldsEntry) { slices.SortFunc(entries, compareEntries) }

// compareEntries compares entries as managed fields are sorted: by operation, time in seconds, manager, version and
// subresource.
func compareEntries(a, b metav1.ManagedFieldsEntry) int {
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

// EqualExceptTimes reports whether managed fields are equal except for their times.
func EqualExceptTimes(a, b []metav1.ManagedFieldsEntry) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.ManagedFieldsEntry) bool {
		return x.Manager == y.Manager && x.Operation == y.Operation && x.APIVersion == y.APIVersion &&
			x.FieldsType == y.FieldsType &&
			x.Subresource == y.Subresource && (x.FieldsV1 == nil) == (y.FieldsV1 == nil) &&
			(x.FieldsV1 == nil || bytes.Equal(x.FieldsV1.Raw, y.FieldsV1.Raw))
	})
}
