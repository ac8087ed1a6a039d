package cache

import "math"

// Topic is what a watch selects. The zero value is everything. Otherwise it is one of a namespace, a key, or a value of
// an indexed field.
type Topic struct {
	Namespace string
	Key       string
	Field     int // 1 + index in Kind.IndexedFields; 0 if none
	Value     string
}

// topics holds a separate log for each topic that is being watched, so that an event costs only the watches that it
// concerns. A topic exists as long as it has readers.
type topics struct {
	byNamespace map[string]*topicLog
	byKey       map[string]*topicLog
	byField     []map[string]*topicLog
}

type topicLog struct {
	*eventLog
	readers int
}

func newTopics(fields int) topics {
	t := topics{byNamespace: map[string]*topicLog{}, byKey: map[string]*topicLog{}}
	for range fields {
		t.byField = append(t.byField, map[string]*topicLog{})
	}
	return t
}

func (t *topics) end() { t.each(func(topic *topicLog) { topic.end() }) }

func (t *topics) each(f func(*topicLog)) {
	for _, m := range append([]map[string]*topicLog{t.byNamespace, t.byKey}, t.byField...) {
		for _, topic := range m {
			f(topic)
		}
	}
}

// mapOf returns the map that has a topic, and the topic's name in it.
func (t *topics) mapOf(what Topic) (map[string]*topicLog, string) {
	switch {
	case what.Key != "":
		return t.byKey, what.Key
	case what.Field > 0:
		return t.byField[what.Field-1], what.Value
	default:
		return t.byNamespace, what.Namespace
	}
}

// append appends events to the topics that they concern. The caller holds the resource's lock, and has appended the
// events to its log.
func (t *topics) append(r *Resource, events []*Event) {
	var concerned map[*topicLog][]*Event
	add := func(to *topicLog, e *Event) {
		if to == nil {
			return
		}
		if concerned == nil {
			concerned = map[*topicLog][]*Event{}
		}
		if list := concerned[to]; len(list) == 0 || list[len(list)-1] != e {
			concerned[to] = append(list, e)
		}
	}
	for _, e := range events {
		either := e.Entry
		if either == nil {
			either = e.Prev
		}
		if len(t.byKey) > 0 {
			add(t.byKey[either.Key], e)
		}
		if len(t.byNamespace) > 0 {
			add(t.byNamespace[either.Namespace], e)
		}
		for i, values := range t.byField {
			if len(values) == 0 {
				continue
			}
			if e.Err != nil { // the new field values are unknown, so all topics by field get it
				for _, topic := range values {
					add(topic, e)
				}
				continue
			}
			for _, entry := range []*Entry{e.Prev, e.Entry} {
				if entry != nil {
					value, _ := entry.Field(r.Kind.IndexedFields[i])
					add(values[value], e)
				}
			}
		}
	}
	r.log.mu.RLock()
	floor := r.log.minRevision
	r.log.mu.RUnlock()
	for topic, list := range concerned {
		topic.append(list, math.MaxInt/2, floor)
	}
}

// belongsTo reports whether an event belongs to a topic.
func (r *Resource) belongsTo(what Topic, e *Event) bool {
	for _, entry := range []*Entry{e.Prev, e.Entry} {
		if entry == nil {
			continue
		}
		if e.Err != nil && what.Field > 0 {
			return true // the new field value is unknown
		}
		switch {
		case what.Key != "":
			if entry.Key == what.Key {
				return true
			}
		case what.Field > 0:
			if value, _ := entry.Field(r.Kind.IndexedFields[what.Field-1]); value == what.Value {
				return true
			}
		default:
			if entry.Namespace == what.Namespace {
				return true
			}
		}
	}
	return false
}

// Watch returns a cursor over the events of a topic after a revision, which must have been reached. The caller closes
// the cursor.
func (r *Resource) Watch(what Topic, after int64) (*Cursor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, number, err := r.log.after(after)
	if err != nil {
		return nil, err
	}
	if what == (Topic{}) {
		return &Cursor{log: r.log, next: number}, nil
	}
	in, name := r.topics.mapOf(what)
	t := in[name]
	if t == nil {
		// A new topic starts with the matching events of the log, so that it covers the same revisions.
		t = &topicLog{eventLog: newEventLog(r.log.minRevision)}
		all, _, err := r.log.after(r.log.minRevision)
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			if r.belongsTo(what, e) {
				t.events = append(t.events, e)
				t.bytes += e.cost()
			}
		}
		in[name] = t
	}
	if _, number, err = t.after(after); err != nil {
		return nil, err
	}
	t.readers++
	return &Cursor{log: t.eventLog, next: number, close: func() { r.releaseTopic(in, name, t) }}, nil
}

func (r *Resource) releaseTopic(in map[string]*topicLog, name string, t *topicLog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.readers--; t.readers == 0 && in[name] == t {
		delete(in, name)
	}
}
