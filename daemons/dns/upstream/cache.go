package upstream

import (
	"container/list"
	"hash/maphash"
	"sync"
	"time"

	"clusterctl/daemons/dns/wire"
)

// These are the limits of the cache: shards, answers in all, and bytes in all. The least recently used answer is
// removed first.
const (
	shards     = 16
	maxAnswers = 10000
	maxMemory  = 32 << 20
)

// staleTTL is the time to live of an expired answer that is given to clients, in seconds (RFC 8767).
const staleTTL = 30

// Found is an answer of another server. It is immutable.
type Found struct {
	answer *wire.Stored
	since  time.Time
	until  time.Time // when it expires
	stale  time.Time // when it can no longer be used
}

// Give writes the answer to a query into the memory of b. Times to live are reduced by the answer's age.
func (f *Found) Give(b []byte, q *wire.Query, limit int, now time.Time) []byte {
	age := uint32(max(now.Sub(f.since), 0) / time.Second)
	return f.answer.Give(b, q, limit, func(ttl uint32) uint32 {
		if !now.Before(f.until) {
			return min(ttl, staleTTL)
		}
		return ttl - min(ttl, age)
	})
}

// Answer returns the stored message.
func (f *Found) Answer() *wire.Stored { return f.answer }

// negative reports whether the answer says that there is no record.
func (f *Found) negative() bool { return f.answer.Code() != wire.Success || f.answer.Answers() == 0 }

type kept struct {
	key   string
	found *Found
	again time.Time // servers are not asked again for an expired answer before this time
}

type cache struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu      sync.Mutex
	items   map[string]*list.Element
	order   *list.List // of *kept, the most recently used first
	memory  int
	denials int // number of negative answers
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

// get returns an answer that can be used, even if it expired, or nil. again reports whether servers may be asked for a
// newer one.
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

// put adds an answer to the cache.
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

// failed records that no newer answer could be obtained, and when to try again.
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

// sizes returns the numbers of positive answers, of negative answers, and of answers evicted for lack of space.
func (c *cache) sizes() (answers, denials, evicted int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		answers, denials, evicted = answers+s.order.Len()-s.denials, denials+s.denials, evicted+s.evicted
		s.mu.Unlock()
	}
	return answers, denials, evicted
}
