package cache

import (
	"strings"
)

// Snapshot holds all objects of a kind at a revision. It is immutable.
type Snapshot struct {
	Revision int64 // revision of the last change before; the state is valid until the next change

	resource *Resource
	objects  objectTrees
	log      *eventLog
}

// Snapshot returns the current snapshot.
func (r *Resource) Snapshot() *Snapshot {
	if s := r.snapshot.Load(); s != nil {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.snapshot.Load(); s != nil {
		return s
	}
	s := &Snapshot{resource: r, Revision: r.revision.Load(), objects: r.objects.clone(), log: r.log}
	r.snapshot.Store(s)
	return s
}

// Count returns the number of objects in a namespace; in all of them, if namespace is empty.
func (s *Snapshot) Count(namespace string) int {
	if namespace == "" {
		return s.objects.byKey.Len()
	}
	n, _ := s.objects.namespaces.Get(namespaceCount{namespace: namespace})
	return n.count
}

// Ascend calls f, in order, for the entries whose key has the prefix and comes after the key after. It stops when f
// returns false.
func (s *Snapshot) Ascend(prefix, after string, f func(*Entry) bool) {
	if namespace, ok := strings.CutSuffix(prefix, "/"); ok && after == "" {
		s.ascendNamespace(namespace, prefix, f)
		return
	}
	s.objects.byKey.AscendGreaterOrEqual(&Entry{Key: max(prefix, after)}, func(e *Entry) bool {
		if !strings.HasPrefix(e.Key, prefix) {
			return false
		}
		return e.Key == after || f(e)
	})
}

// ascendNamespace is Ascend over a whole namespace. It counts the entries instead of comparing each key with the
// prefix, which is half the cost of a search with few results.
func (s *Snapshot) ascendNamespace(namespace, prefix string, f func(*Entry) bool) {
	left := s.Count(namespace)
	s.objects.byKey.AscendGreaterOrEqual(&Entry{Key: prefix}, func(e *Entry) bool {
		if left == 0 {
			return false
		}
		left--
		return f(e)
	})
}

// AscendField is Ascend over the entries whose indexed field has a value. It returns false if the field is not indexed.
func (s *Snapshot) AscendField(name, value, prefix, after string, f func(*Entry) bool) bool {
	for i, indexed := range s.resource.Kind.IndexedFields {
		if indexed != name || i >= len(s.objects.byField) {
			continue
		}
		s.objects.byField[i].AscendGreaterOrEqual(
			&Entry{Key: max(prefix, after), values: []string{name, value}},
			func(e *Entry) bool {
				if v, _ := e.Field(name); v != value || !strings.HasPrefix(e.Key, prefix) {
					return false
				}
				return e.Key == after || f(e)
			},
		)
		return true
	}
	return false
}

// NewSnapshot returns a snapshot that holds only the given entries, read from the store at a revision.
func (r *Resource) NewSnapshot(entries []*Entry, revision int64) *Snapshot {
	return &Snapshot{resource: r, Revision: revision, objects: newObjectTrees(nil, entries)}
}

// SnapshotAt returns the state at an exact revision, by undoing the later events of the log. The cache must have
// reached the revision.
func (r *Resource) SnapshotAt(revision int64) (*Snapshot, error) {
	now := r.Snapshot()
	if now.Revision <= revision {
		return now, nil
	}
	events, _, err := now.log.after(revision)
	if err != nil {
		return nil, err
	}
	r.mu.Lock() // cloning a tree is not safe for concurrent use
	objects := objectTrees{byKey: now.objects.byKey.Clone(), namespaces: now.objects.namespaces.Clone()}
	r.mu.Unlock()
	for i := len(events) - 1; i >= 0; i-- {
		switch e := events[i]; {
		case e.Revision > now.Revision:
		case e.WasUnreadable:
			return nil, ErrExpired // the object was unreadable before this event
		case e.Err != nil: // the tree still has the object from before
		case e.Prev != nil:
			if _, replaced := objects.byKey.ReplaceOrInsert(e.Prev); !replaced {
				addToNamespace(objects.namespaces, e.Prev.Namespace, 1)
			}
		default:
			objects.byKey.Delete(e.Entry)
			addToNamespace(objects.namespaces, e.Entry.Namespace, -1)
		}
	}
	return &Snapshot{resource: r, Revision: revision, objects: objects, log: now.log}, nil
}
