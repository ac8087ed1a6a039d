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
	shardCount = 16
	maxAnswers = 10000
	maxMemory  = 32 << 20
)

// staleTTL is the time to live of an expired answer that is given to clients, in seconds (RFC 8767).
const staleTTL = 30

// Response is an answer of another server. It is immutable.
type Response struct {
	answer     *wire.Stored
	storedAt   time.Time
	expires    time.Time // when it expires
	staleUntil time.Time // when it can no longer be used
}

// WriteReply writes the answer to a query into the memory of b. Times to live are reduced by the answer's age.
func (f *Response) WriteReply(b []byte, q *wire.Query, limit int, now time.Time) []byte {
	age := uint32(max(now.Sub(f.storedAt), 0) / time.Second)
	return f.answer.WriteReply(b, q, limit, func(ttl uint32) uint32 {
		if !now.Before(f.expires) {
			return min(ttl, staleTTL)
		}
		return ttl - min(ttl, age)
	})
}

// Answer returns the stored message.
func (f *Response) Answer() *wire.Stored { return f.answer }

// isNegative reports whether the answer says that there is no record.
func (f *Response) isNegative() bool {
	return f.answer.Code() != wire.Success || f.answer.Answers() == 0
}

type cacheItem struct {
	key      string
	response *Response
	retryAt  time.Time // servers are not asked again for an expired answer before this time
}

type cache struct {
	seed   maphash.Seed
	shards [shardCount]shard
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

func (c *cache) shardOf(key []byte) *shard { return &c.shards[maphash.Bytes(c.seed, key)%shardCount] }

// get returns an answer that can be used, even if it expired, or nil. again reports whether servers may be asked for a
// newer one.
func (c *cache) get(key []byte, now time.Time) (found *Response, again bool) {
	s := c.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.items[string(key)]
	if e == nil {
		return nil, true
	}
	k := e.Value.(*cacheItem)
	if !now.Before(k.response.staleUntil) {
		s.remove(e)
		return nil, true
	}
	s.order.MoveToFront(e)
	return k.response, !now.Before(k.retryAt)
}

// put adds an answer to the cache.
func (c *cache) put(key []byte, found *Response) {
	s := c.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.items[string(key)]; e != nil {
		s.remove(e)
	}
	k := &cacheItem{key: string(key), response: found}
	s.items[k.key] = s.order.PushFront(k)
	s.memory += k.size()
	if found.isNegative() {
		s.denials++
	}
	for s.order.Len() > maxAnswers/shardCount || s.memory > maxMemory/shardCount {
		s.remove(s.order.Back())
		s.evicted++
	}
}

// recordFailure records that no newer answer could be obtained, and when to try again.
func (c *cache) recordFailure(key []byte, again time.Time) {
	s := c.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.items[string(key)]; e != nil {
		e.Value.(*cacheItem).retryAt = again
	}
}

func (s *shard) remove(e *list.Element) {
	k := s.order.Remove(e).(*cacheItem)
	delete(s.items, k.key)
	s.memory -= k.size()
	if k.response.isNegative() {
		s.denials--
	}
}

func (k *cacheItem) size() int { return len(k.key) + k.response.answer.Size() + 200 }

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
