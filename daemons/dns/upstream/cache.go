package upstream

import (
	"container/list"
	"hash/maphash"
	"sync"
	"time"

	"clusterctl/daemons/dns/wire"
)

// The cache has so many shards, so many answers and so much memory. What was used longest ago goes first.
const (
	shards     = 16
	maxAnswers = 10000
	maxMemory  = 32 << 20
)

// staleTTL is for how long clients may keep an answer that is out of date (RFC 8767).
const staleTTL = 30

// Found is an answer of another server. It does not change.
type Found struct {
	answer *wire.Stored
	since  time.Time
	until  time.Time // when it is out of date
	stale  time.Time // when it is of no use any more
}

// Give writes the answer to a query with what is left of its time, in the memory of b.
func (f *Found) Give(b []byte, q *wire.Query, limit int, now time.Time) []byte {
	age := uint32(max(now.Sub(f.since), 0) / time.Second)
	return f.answer.Give(b, q, limit, func(ttl uint32) uint32 {
		if !now.Before(f.until) {
			return min(ttl, staleTTL)
		}
		return ttl - min(ttl, age)
	})
}

// Answer is the message itself.
func (f *Found) Answer() *wire.Stored { return f.answer }

// negative reports whether the answer is that there is none.
func (f *Found) negative() bool { return f.answer.Code() != wire.Success || f.answer.Answers() == 0 }

type kept struct {
	key   string
	found *Found
	again time.Time // not before then are servers asked again for what is out of date
}

type cache struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu      sync.Mutex
	items   map[string]*list.Element
	order   *list.List // of *kept; front: used last
	memory  int
	denials int // how many say that there is no answer
	evicted int
}

func newCache() *cache {
	c := &cache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].items, c.shards[i].order = map[string]*list.Element{}, list.New()
	}
	return c
}

func (c *cache) of(key []byte) *shard { return &c.shards[maphash.Bytes(c.seed, key)%shards] }

// get returns an answer that is up to date or may still be given, or nil; and whether servers may be asked for a newer
// one.
func (c *cache) get(key []byte, now time.Time) (found *Found, again bool) {
	s := c.of(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.items[string(key)]
	if e == nil {
		return nil, true
	}
	k := e.Value.(*kept)
	if !now.Before(k.found.stale) {
		s.remove(e)
		return nil, true
	}
	s.order.MoveToFront(e)
	return k.found, !now.Before(k.again)
}

// put keeps an answer.
func (c *cache) put(key []byte, found *Found) {
	s := c.of(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.items[string(key)]; e != nil {
		s.remove(e)
	}
	k := &kept{key: string(key), found: found}
	s.items[k.key] = s.order.PushFront(k)
	s.memory += k.size()
	if found.negative() {
		s.denials++
	}
	for s.order.Len() > maxAnswers/shards || s.memory > maxMemory/shards {
		s.remove(s.order.Back())
		s.evicted++
	}
}

// failed notes that no newer answer was to be had.
func (c *cache) failed(key []byte, again time.Time) {
	s := c.of(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.items[string(key)]; e != nil {
		e.Value.(*kept).again = again
	}
}

func (s *shard) remove(e *list.Element) {
	k := s.order.Remove(e).(*kept)
	delete(s.items, k.key)
	s.memory -= k.size()
	if k.found.negative() {
		s.denials--
	}
}

func (k *kept) size() int { return len(k.key) + k.found.answer.Size() + 200 }

// sizes counts the answers that are kept, those that say that there is none, and those that had to go for want of room.
func (c *cache) sizes() (answers, denials, evicted int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		answers, denials, evicted = answers+s.order.Len()-s.denials, denials+s.denials, evicted+s.evicted
		s.mu.Unlock()
	}
	return answers, denials, evicted
}
