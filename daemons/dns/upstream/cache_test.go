package upstream

import (
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestAnswersAreCachedForTheirTTL(t *testing.T) {
	w := newFakeServer(t, "127.0.0.1:0", replyWith(t, 0, "a.example. 20 IN A 192.0.2.1"))
	c := newClient(t, Config{Servers: []string{w.addr}, MaxTTL: 15 * time.Second, MaxNegativeTTL: 10 * time.Second})
	requested := func(want int64) {
		t.Helper()
		if got := w.queries.Swap(0); got != want {
			t.Errorf("the server was asked %d times, not %d", got, want)
		}
	}
	c.check("a.example.", "192.0.2.1", 20)
	c.clock.advance(5 * time.Second)
	c.check("A.example.", "192.0.2.1", 15)
	requested(1)
	c.clock.advance(10 * time.Second) // longer than answers are cached
	c.check("a.example.", "192.0.2.1", 20)
	requested(1)

	w.setReply(replyWith(t, dns.RcodeNameError, "example. 60 IN SOA ns.example. h.example. 1 2 3 4 5"))
	c.check("none.example.", "NXDOMAIN", 0)
	c.clock.advance(4 * time.Second)
	c.check("none.example.", "NXDOMAIN", 0)
	requested(1)
	c.clock.advance(2 * time.Second) // longer than the SOA record allows
	c.check("none.example.", "NXDOMAIN", 0)
	requested(1)

	w.setReply(replyWith(t, dns.RcodeSuccess, "example. 60 IN SOA ns.example. h.example. 1 2 3 4 60"))
	c.check("nothing.example.", "NOERROR", 0)
	c.clock.advance(11 * time.Second) // longer than negative answers are cached
	c.check("nothing.example.", "NOERROR", 0)
	requested(2)

	// A negative answer without an SOA record is not cached (RFC 2308), nor is a record with a TTL of zero (RFC 1035).
	for _, say := range []func(*dns.Msg, bool) *dns.Msg{replyWith(t, dns.RcodeNameError),
		replyWith(t, 0, "now.example. 0 IN A "+
			"192.0.2.2")} {
		w.setReply(say)
		for range 2 {
			if _, err := c.ask("now.example."); err != nil {
				t.Error(err)
			}
		}
		requested(2)
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache()
	now := time.Unix(1000, 0)
	m := new(dns.Msg).SetQuestion("a.", dns.TypeA)
	found, err := newResponse(m, now)
	if err != nil {
		t.Fatal(err)
	}
	found.expires, found.staleUntil = now.Add(time.Minute), now.Add(time.Minute)
	for i := range 2 * maxAnswers {
		c.put([]byte{byte(i), byte(i >> 8), byte(i >> 16)}, found)
	}
	answers, denials, evicted := c.sizes()
	if answers != 0 || denials > maxAnswers || denials < maxAnswers*9/10 || evicted != 2*maxAnswers-denials {
		t.Errorf("%d answers and %d denials are kept, %d went", answers, denials, evicted)
	}
	for i := range 4096 {
		m.Answer = append(
			m.Answer,
			&dns.A{
				Hdr: dns.RR_Header{Name: "a.", Rrtype: dns.TypeA, Class: 1, Ttl: 5},
				A:   net.IPv4(1, 2, byte(i>>8), byte(i)),
			},
		)
	}
	large, err := newResponse(m, now)
	if err != nil {
		t.Fatal(err)
	}
	large.expires, large.staleUntil = found.expires, found.staleUntil
	for i := range maxAnswers {
		c.put([]byte{byte(i), byte(i >> 8)}, large)
	}
	for i := range c.shards {
		if c.shards[i].memory > maxMemory/shardCount || c.shards[i].memory < 0 {
			t.Errorf("a shard has %d bytes", c.shards[i].memory)
		}
	}
}

// If servers fail, an expired answer is used for a limited time (RFC 8767).
func TestStaleAnswersAreServedWhenNoServerResponds(t *testing.T) {
	w := newFakeServer(t, "127.0.0.1:0", replyWith(t, 0, "a.example. 20 IN A 192.0.2.1"))
	c := newClient(t, Config{Servers: []string{w.addr}, StaleFor: time.Hour})
	c.check("a.example.", "192.0.2.1", 20)
	w.setReply(replyWith(t, dns.RcodeServerFailure))
	c.clock.advance(time.Minute)
	w.queries.Store(0)
	c.check("a.example.", "192.0.2.1", 20)
	c.check("a.example.", "192.0.2.1", 20)
	if n := w.queries.Load(); n != 1 {
		t.Errorf("a server that fails was asked %d times at once", n)
	}
	w.setReply(noReply)
	c.clock.advance(staleRetryDelay)
	start := time.Now()
	c.check("a.example.", "192.0.2.1", 20)
	if took := time.Since(start); took < staleWait || took > staleWait+time.Second {
		t.Errorf("a silent server was waited for for %v", took)
	}
	w.setReply(replyWith(t, 0, "a.example. 20 IN A 192.0.2.2"))
	c.clock.advance(staleRetryDelay)
	deadline := time.Now().Add(10 * time.Second)
	for m, _ := c.ask("a.example."); m.Answer[0].(*dns.A).A.String() != "192.0.2.2"; m, _ = c.ask("a.example.") {
		if time.Now().After(deadline) {
			t.Fatal("the server's new answer is not given")
		}
		c.clock.advance(staleRetryDelay)
	}
	w.setReply(replyWith(t, dns.RcodeServerFailure))
	c.clock.advance(time.Hour + 21*time.Second)
	c.check("a.example.", "SERVFAIL", 20)
}
