package cache

import "strings"

// CompactLogs compacts the entries that only the logs still have. After a busy time these are scattered over the heap,
// and each keeps a page from being returned to the system. Call it when the server is idle. Readers see no change.
func (c *Cache) CompactLogs() {
	for _, r := range c.Resources() {
		r.pack()
		r.entries.shrink()
	}
}

const (
	// entriesPerBlock is how many entries, or events, share one allocation. It is freed when the last of them is.
	entriesPerBlock = 64
	// maxPackedSize is the size, in bytes, of the largest objects that are packed. Larger ones have pages of their own.
	maxPackedSize = 32 << 10
)

// pack replaces the log's events by copies whose JSON is compressed. It locks the resource only to collect and to
// replace them. Readers keep the events that they hold.
func (r *Resource) pack() {
	p := packer{entries: map[*Entry]*Entry{}, events: map[*Event]*Event{}}
	r.mu.Lock()
	for _, l := range r.logs() {
		p.collect(l.events)
	}
	r.mu.Unlock()
	p.pack()
	r.mu.Lock() // all writers of the logs hold this lock
	defer r.mu.Unlock()
	for _, l := range r.logs() {
		l.replace(p.copiesOf(l.events))
	}
}

// logs returns all logs that have the kind's events. The caller holds r.mu.
func (r *Resource) logs() []*eventLog {
	logs := []*eventLog{r.log}
	r.topics.each(func(t *topicLog) { logs = append(logs, t.eventLog) })
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
	entries    map[*Entry]*Entry
	events     map[*Event]*Event
	pending    []*Entry // entries to pack, in order
	compressor compressor
}

// collect collects the entries to pack: those that no snapshot has. Entries that were converted to other versions stay,
// to keep the result of the conversion.
func (p *packer) collect(events []*Event) {
	for _, event := range events {
		for _, e := range []*Entry{event.Prev, event.Entry} {
			if e == nil || e.block != nil || !e.isSuperseded.Load() || e.forms.versions.Load() != nil ||
				len(e.encoded) > maxPackedSize ||
				p.entries[e] != nil {
				continue
			}
			p.entries[e] = e
			p.pending = append(p.pending, e)
		}
	}
}

// pack copies the entries.
func (p *packer) pack() {
	var text []byte
	for len(p.pending) > 0 {
		some := p.pending[:min(entriesPerBlock, len(p.pending))]
		p.pending = p.pending[len(some):]
		values, names, keys := 0, 0, strings.Builder{}
		text = text[:0]
		for _, e := range some {
			text, names, values = append(text, e.encoded...), names+len(e.Key), values+len(e.values)
		}
		keys.Grow(names)
		for _, e := range some {
			keys.WriteString(e.Key)
		}
		parcel := p.compressor.compress(text)
		if parcel == nil {
			return // the entries stay unpacked
		}
		places := entryBlock{entries: make([]Entry, len(some)), keys: keys.String(), values: make([]string, 0, values)}
		for i, e := range some {
			p.entries[e] = places.add(i, e, parcel)
		}
	}
}

// entryBlock is the shared allocation of entries that are packed together.
type entryBlock struct {
	entries []Entry
	keys    string
	values  []string
	end     int32
}

func (r *entryBlock) add(i int, e *Entry, in *compressedBlock) *Entry {
	to := &r.entries[i]
	to.Key, r.keys = r.keys[:len(e.Key)], r.keys[len(e.Key):]
	to.Namespace, to.Name = to.Key[:len(e.Namespace)], to.Key[len(e.Key)-len(e.Name):]
	to.Revision, to.Labels, to.Stale, to.versionOffset, to.kind = e.Revision, e.Labels, e.Stale, e.versionOffset, e.kind
	first := len(r.values)
	r.values = append(r.values, e.values...)
	to.values = r.values[first:len(r.values):len(r.values)]
	to.block, to.blockSpan = in, span{r.end, r.end + int32(len(e.encoded))}
	r.end = to.blockSpan.to
	to.isSuperseded.Store(true)
	return to
}

// copyOf returns the copy of an entry, or the entry itself if it was not copied.
func (p *packer) copyOf(e *Entry) *Entry {
	if to := p.entries[e]; to != nil {
		return to
	}
	return e
}

// copiesOf returns the copies of events.
func (p *packer) copiesOf(events []*Event) []*Event {
	out := make([]*Event, len(events))
	var free []Event
	for i, event := range events {
		to := p.events[event]
		switch {
		case to != nil:
		case event.isPacked && p.copyOf(event.Entry) == event.Entry && p.copyOf(event.Prev) == event.Prev:
			to = event
		default:
			if len(free) == 0 {
				free = make([]Event, min(entriesPerBlock, len(events)-i))
			}
			to, free = &free[0], free[1:]
			to.Revision, to.Entry, to.Prev, to.isPacked = event.Revision, p.copyOf(event.Entry), p.copyOf(event.Prev),
				true
			to.Err, to.WasUnreadable = event.Err, event.WasUnreadable
			p.events[event] = to
		}
		out[i] = to
	}
	return out
}
