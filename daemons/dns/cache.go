package dns

import (
	"container/list"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Answers of other servers are kept for as long as they allow, within these bounds.
const (
	maxKept     = 10000
	minKeptTime = time.Second
)

// answers keeps a bounded number of other servers' answers; the one that was used
// longest ago goes first.
type answers struct {
	now    func() time.Time
	most   time.Duration // for answers
	denied time.Duration // for "no such name"

	mu    sync.Mutex
	items map[question]*list.Element
	order *list.List // front: used last
}

type question struct {
	name  string
	kind  uint16
	class uint16
	do    bool
}

type kept struct {
	q     question
	msg   *dns.Msg
	since time.Time
	until time.Time
}

func newAnswers(now func() time.Time, most, denied time.Duration) *answers {
	return &answers{now: now, most: most, denied: denied, items: map[question]*list.Element{}, order: list.New()}
}

// get returns a copy of an answer with what is left of its time, or nil.
func (c *answers) get(q question) *dns.Msg {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.items[q]
	if e == nil {
		return nil
	}
	k, now := e.Value.(*kept), c.now()
	if !now.Before(k.until) {
		c.order.Remove(e)
		delete(c.items, q)
		return nil
	}
	c.order.MoveToFront(e)
	msg, age := k.msg.Copy(), uint32(now.Sub(k.since)/time.Second)
	for _, section := range [][]dns.RR{msg.Answer, msg.Ns, msg.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl -= min(h.Ttl, age)
			}
		}
	}
	return msg
}

// put keeps an answer for as long as it may be kept.
func (c *answers) put(q question, msg *dns.Msg) {
	if msg.Truncated || msg.Rcode != dns.RcodeSuccess && msg.Rcode != dns.RcodeNameError {
		return
	}
	life := c.most
	if len(msg.Answer) == 0 {
		life = c.denied
	}
	for _, section := range [][]dns.RR{msg.Answer, msg.Ns} {
		for _, rr := range section {
			allowed := time.Duration(rr.Header().Ttl) * time.Second
			if s, ok := rr.(*dns.SOA); ok {
				allowed = min(allowed, time.Duration(s.Minttl)*time.Second)
			}
			life = min(life, allowed)
		}
	}
	life = max(life, minKeptTime)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	k := &kept{q, msg.Copy(), now, now.Add(life)}
	if e := c.items[q]; e != nil {
		e.Value = k
		c.order.MoveToFront(e)
		return
	}
	c.items[q] = c.order.PushFront(k)
	if c.order.Len() > maxKept {
		last := c.order.Back()
		c.order.Remove(last)
		delete(c.items, last.Value.(*kept).q)
	}
}
