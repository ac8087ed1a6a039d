package cache

import "strings"

// Rest compacts the entries that only the logs still have. After a busy time these are scattered over the heap, and
// each keeps a page from being returned to the system. Rest is called when the server is idle, and changes nothing for
// readers.
func (c *Cache) Rest() {
	for _, r := range c.Resources() {
		r.pack()
		r.entries.shrink()
	}
}

const (
	// together is how many entries, or events, share one allocation. It is freed when the last of them is.
	together = 64
	// scattered is the size, in bytes, of the largest objects that are packed. Larger ones have pages of their own.
	scattered = 32 << 10
)

// pack replaces the log's events by copies whose JSON is compressed. It locks the resource only to collect and to
// replace them. Readers keep the events that they hold.
func (r *Resource) pack() {
	p := packer{entries: map[*Entry]*Entry{}, events: map[*Event]*Event{}}
	r.mu.Lock()
	for _, l := range r.logs() {
		p.gather(l.events)
	}
	r.mu.Unlock()
	p.pack()
	r.mu.Lock() // all writers of the logs hold this lock
	defer r.mu.Unlock()
	for _, l := range r.logs() {
		l.replace(p.packed(l.events))
	}
}

// logs returns all logs that have the kind's events. The caller holds r.mu.
func (r *Resource) logs() []*eventLog {
	logs := []*eventLog{r.log}
	r.topics.each(func(t *topic) { logs = append(logs, t.eventLog) })
	return logs
}

// replace replaces all events by equal copies.
func (l *eventLog) replace(events []*Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = events
}

// packer copies entries and events. Each is copied once, even if several logs have it.
type packer struct {
	entries map[*Entry]*Entry
	events  map[*Event]*Event
	loose   []*Entry // entries to pack, in order
	wrapper wrapper
}

// gather collects the entries to pack: those that no snapshot has. Entries that were converted to other versions stay,
// to keep the result of the conversion.
func (p *packer) gather(events []*Event) {
	for _, event := range events {
		for _, e := range []*Entry{event.Prev, event.Entry} {
			if e == nil || e.parcel != nil || !e.past.Load() || e.versions.Load() != nil || len(e.json) > scattered ||
				p.entries[e] != nil {
				continue
			}
			p.entries[e] = e
			p.loose = append(p.loose, e)
		}
	}
}

// pack copies the entries.
func (p *packer) pack() {
	var text []byte
	for len(p.loose) > 0 {
		some := p.loose[:min(together, len(p.loose))]
		p.loose = p.loose[len(some):]
		values, names, keys := 0, 0, strings.Builder{}
		text = text[:0]
		for _, e := range some {
			text, names, values = append(text, e.json...), names+len(e.Key), values+len(e.values)
		}
		keys.Grow(names)
		for _, e := range some {
			keys.WriteString(e.Key)
		}
		parcel := p.wrapper.wrap(text)
		if parcel == nil {
			return // the entries stay unpacked
		}
		places := room{entries: make([]Entry, len(some)), keys: keys.String(), values: make([]string, 0, values)}
		for i, e := range some {
			p.entries[e] = places.put(i, e, parcel)
		}
	}
}

// room is the shared allocation of entries that are packed together.
type room struct {
	entries []Entry
	keys    string
	values  []string
	end     int32
}

func (r *room) put(i int, e *Entry, in *parcel) *Entry {
	to := &r.entries[i]
	to.Key, r.keys = r.keys[:len(e.Key)], r.keys[len(e.Key):]
	to.Namespace, to.Name = to.Key[:len(e.Namespace)], to.Key[len(e.Key)-len(e.Name):]
	to.Revision, to.Labels, to.Stale, to.splice, to.kind = e.Revision, e.Labels, e.Stale, e.splice, e.kind
	first := len(r.values)
	r.values = append(r.values, e.values...)
	to.values = r.values[first:len(r.values):len(r.values)]
	to.parcel, to.place = in, span{r.end, r.end + int32(len(e.json))}
	r.end = to.place.to
	to.past.Store(true)
	return to
}

// moved returns the copy of an entry, or the entry itself if it was not copied.
func (p *packer) moved(e *Entry) *Entry {
	if to := p.entries[e]; to != nil {
		return to
	}
	return e
}

// packed returns the copies of events.
func (p *packer) packed(events []*Event) []*Event {
	out := make([]*Event, len(events))
	var free []Event
	for i, event := range events {
		to := p.events[event]
		switch {
		case to != nil:
		case event.packed && p.moved(event.Entry) == event.Entry && p.moved(event.Prev) == event.Prev:
			to = event
		default:
			if len(free) == 0 {
				free = make([]Event, min(together, len(events)-i))
			}
			to, free = &free[0], free[1:]
			to.Revision, to.Entry, to.Prev, to.packed = event.Revision, p.moved(event.Entry), p.moved(event.Prev), true
			to.Err, to.Found = event.Err, event.Found
			p.events[event] = to
		}
		out[i] = to
	}
	return out
}
