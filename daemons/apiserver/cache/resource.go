package cache

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"clusterctl/daemons/kinds"
)

// The events of a kind stay in memory until the store compacts them, as far as there is room. maxLogBytes is the limit,
// in bytes, for one kind. If the logs of all kinds together exceed maxTotalLogBytes, each may have only minLogBytes.
const (
	maxLogBytes      = 32 << 20
	minLogBytes      = 4 << 20
	maxTotalLogBytes = 128 << 20
)

// budget is the total size of all logs of a cache.
type budget struct{ used atomic.Int64 }

// perLog returns how many bytes a log may have.
func (b *budget) perLog() int {
	if b.used.Load() > maxTotalLogBytes {
		return minLogBytes
	}
	return maxLogBytes
}

// Resource is the cache of one kind: the objects by key and in order, and a log of events. Single objects are found by
// their keys. A snapshot of all is made on request, and is valid until the next change.
type Resource struct {
	Kind *kinds.Kind

	prefix string // of the store's keys
	logger *slog.Logger

	snapshot   atomic.Pointer[Snapshot] // nil if none was made since the last change
	revision   atomic.Int64             // of the last change
	entries    entries
	unreadable unreadableKeys

	mu      sync.Mutex // guards the fields below; held while applying events
	objects objectTrees
	log     *eventLog
	topics  topics
	budget  *budget // shared with the other kinds
	counts  Counts

	loading loading
}

// loading is how far the contents of a resource have been loaded. It is guarded by the cache's feed mutex.
type loading struct {
	replacement *Resource        // the resource that will replace this one
	isFilling   bool             // whether the first load goes on
	held        []resourceChange // the changes since the first load began
	revision    int64            // changes up to this revision were part of the load
}

func newResource(k *kinds.Kind, shared *budget) *Resource {
	r := &Resource{Kind: k, budget: shared, logger: slog.New(slog.DiscardHandler)}
	r.reset(nil, nil, 0)
	return r
}

func (c *Cache) newResource(k *kinds.Kind) *Resource {
	r := newResource(k, &c.budget)
	r.prefix, r.logger = c.Key(k, ""), c.log
	return r
}

// reset replaces the contents by what the store held at a revision. Watches end, so that their clients list again.
func (r *Resource) reset(entries []*Entry, unread map[string]error, revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unreadable.add(unread)
	defer r.unreadable.replace(unread) // objects that are readable again are in the tree by then
	r.loading.held, r.loading.revision = nil, revision
	if revision > 0 {
		r.counts.Loaded++
	}
	r.objects = newObjectTrees(r.Kind.IndexedFields, entries)
	if r.log != nil {
		r.budget.used.Add(-int64(r.log.size()))
		r.log.end()
		r.topics.end()
	}
	r.log = newEventLog(revision)
	r.topics = newTopics(len(r.objects.byField))
	r.entries.replace(entries)
	r.snapshot.Store(nil)
	r.revision.Store(revision)
}

// apply applies the changes of one or more whole revisions, in order.
func (r *Resource) apply(changes []resourceChange) {
	if r.loading.isFilling {
		r.loading.held = append(r.loading.held, changes...)
		return
	}
	for len(changes) > 0 && changes[0].revision <= r.loading.revision {
		changes = changes[1:]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.unreadable.apply(changes)
	r.counts.Received += int64(len(changes))
	events := make([]*Event, 0, len(changes))
	for _, c := range changes {
		if c.err != nil {
			// The previous object stays in the tree, but is not served as the current one.
			r.unreadable.set(c.key, c.err)
			events = append(events, r.unreadableEvent(c))
			continue
		}
		event := &Event{Revision: c.revision, Entry: c.entry, WasUnreadable: r.unreadable.contains(c.key)}
		prev, existed := r.objects.set(c.key, c.entry)
		if existed {
			event.Prev = prev
			prev.supersede()
		}
		if existed || c.entry != nil {
			events = append(events, event)
		}
	}
	if len(events) == 0 {
		return
	}
	r.counts.Dispatched += int64(len(events))
	// Append to the log first, so that the log always has the history of what readers find in entries.
	before := r.log.size()
	r.log.append(events, r.budget.perLog(), 0)
	r.budget.used.Add(int64(r.log.size() - before))
	r.topics.append(r, events)
	r.entries.apply(events)
	r.snapshot.Store(nil) // frees what only the old snapshot had
	r.revision.Store(events[len(events)-1].Revision)
}

// unreadableEvent returns the event of an object that cannot be read from now on. The caller holds r.mu.
func (r *Resource) unreadableEvent(c resourceChange) *Event {
	prev, existed := r.objects.byKey.Get(&Entry{Key: c.key})
	if !existed {
		prev = nameOnlyEntry(r.Kind, c.key)
	}
	return &Event{Revision: c.revision, Prev: prev, Err: c.err}
}

// endWatches ends all watches, because this cache will not be kept current any more.
func (r *Resource) endWatches() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.budget.used.Add(-int64(r.log.size()))
	r.log.end()
	r.topics.end()
}

// trim drops the events that the store has compacted.
func (r *Resource) trim(revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.log.size()
	r.log.trim(revision)
	r.budget.used.Add(int64(r.log.size() - before))
	r.topics.each(func(t *topicLog) { t.trim(revision) })
}

// resourceChange is a store event for a resource.
type resourceChange struct {
	key      string
	revision int64
	entry    *Entry // nil if deleted
	err      error  // why the current object cannot be read
}

// Get returns the current entry of a key; nil if there is none.
func (r *Resource) Get(key string) *Entry {
	return r.entries.get(key)
}

// Revision returns the revision of the last change.
func (r *Resource) Revision() int64 { return r.revision.Load() }

// Len returns the number of objects.
func (r *Resource) Len() int { return r.entries.len() }

// sampleSize is how many objects are measured for their average size.
const sampleSize = 16

// Counts holds counters of a kind's cache.
type Counts struct {
	Received   int64 // changes from the store
	Dispatched int64 // events that watches could receive
	Loaded     int64 // how often all objects were loaded
}

// Counts returns the counters.
func (r *Resource) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Estimate returns the number of objects, and the approximate size of one in bytes.
func (r *Resource) Estimate() (count, average int) {
	s := r.Snapshot()
	seen, size := 0, 0
	s.objects.byKey.Ascend(func(e *Entry) bool {
		seen, size = seen+1, size+e.Size()
		return seen < sampleSize
	})
	return s.objects.byKey.Len(), size / max(seen, 1)
}
