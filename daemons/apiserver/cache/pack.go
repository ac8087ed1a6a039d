package cache

import "strings"

// Rest packs what the logs alone still have: the events of a time of much work, which lie scattered among what that
// work has left behind, so that each of them keeps a page from being given back. It is called when there is nothing
// else to do, and changes nothing for those who read.
func (c *Cache) Rest() {
	for _, r := range c.Resources() {
		r.pack()
		r.entries.shrink()
	}
}

const (
	// together is how many entries, or events, are one piece of memory, which is there as long as one of them is.
	together = 64
	// scattered is how large an object is at most to be packed: larger ones have pages of their own.
	scattered = 32 << 10
)

// pack puts copies in the place of the log's events, whose JSON is compressed. Nobody waits but for the moment of the
// exchange, and readers keep what they hold.
func (r *Resource) pack() {
	p := packer{entries: map[*Entry]*Entry{}, events: map[*Event]*Event{}}
	r.mu.Lock()
	for _, l := range r.logs() {
		p.gather(l.events)
	}
	r.mu.Unlock()
	p.pack()
	r.mu.Lock() // nobody else writes the logs
	defer r.mu.Unlock()
	for _, l := range r.logs() {
		l.replace(p.packed(l.events))
	}
}

// logs are all that have the kind's events. The lock is held.
func (r *Resource) logs() []*eventLog {
	logs := []*eventLog{r.log}
	r.topics.each(func(t *topic) { logs = append(logs, t.eventLog) })
	return logs
}

// replace puts others that say the same in the place of all events.
func (l *eventLog) replace(events []*Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = events
}

// packer copies entries and events, each of them once however many logs have it.
type packer struct {
	entries map[*Entry]*Entry
	events  map[*Event]*Event
	loose   []*Entry // those to be packed, in order
	wrapper wrapper
}

// gather finds the entries to be packed: those that no snapshot has. What others had to be asked to convert is kept.
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
			return // they stay as they are
		}
		places := room{entries: make([]Entry, len(some)), keys: keys.String(), values: make([]string, 0, values)}
		for i, e := range some {
			p.entries[e] = places.put(i, e, parcel)
		}
	}
}

// room is where entries are put that are packed together.
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

// moved is where an entry now is.
func (p *packer) moved(e *Entry) *Entry {
	if to := p.entries[e]; to != nil {
		return to
	}
	return e
}

// packed returns the events as they are now.
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
