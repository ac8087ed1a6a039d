package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"clusterctl/daemons/dns/wire"
)

// clock is a clock that the test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fakeServer is another name server. It answers over both protocols with the result of say. A nil result means no
// response.
type fakeServer struct {
	addr    string
	queries atomic.Int64
	mu      sync.Mutex
	reply   func(q *dns.Msg, tcp bool) *dns.Msg
}

func (w *fakeServer) setReply(say func(q *dns.Msg, tcp bool) *dns.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reply = say
}

func (w *fakeServer) serve(rw dns.ResponseWriter, q *dns.Msg) {
	w.mu.Lock()
	say := w.reply
	w.mu.Unlock()
	if q.Question[0].Qtype != dns.TypeHINFO {
		w.queries.Add(1)
	}
	if m := say(q, rw.LocalAddr().Network() == "tcp"); m != nil {
		_ = rw.WriteMsg(m)
	}
}

func newFakeServer(t *testing.T, at string, say func(q *dns.Msg, tcp bool) *dns.Msg) *fakeServer {
	t.Helper()
	w := &fakeServer{reply: say}
	for tries := 0; ; tries++ {
		pc, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", pc.LocalAddr().String())
		if err != nil {
			if pc.Close(); tries < 20 {
				continue
			}
			t.Fatal(err)
		}
		w.addr = pc.LocalAddr().String()
		for _, s := range []*dns.Server{{PacketConn: pc, Handler: dns.HandlerFunc(w.serve)},
			{Listener: ln, Handler: dns.HandlerFunc(w.serve)}} {
			go func() { _ = s.ActivateAndServe() }()
			t.Cleanup(func() { _ = s.Shutdown() })
		}
		return w
	}
}

// replyWith returns a function that answers with records, or with a response code and authority records.
func replyWith(t *testing.T, code int, texts ...string) func(*dns.Msg, bool) *dns.Msg {
	t.Helper()
	var list []dns.RR
	for _, text := range texts {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rr)
	}
	return func(q *dns.Msg, _ bool) *dns.Msg {
		m := new(dns.Msg).SetRcode(q, code)
		for _, rr := range list {
			if _, soa := rr.(*dns.SOA); soa {
				m.Ns = append(m.Ns, rr)
			} else {
				m.Answer = append(m.Answer, rr)
			}
		}
		return m
	}
}

func noReply(*dns.Msg, bool) *dns.Msg { return nil }

// client uses a resolver as the server does.
type client struct {
	*Resolver
	t     *testing.T
	clock *clock
}

func newClient(t *testing.T, cfg Config) client {
	t.Helper()
	c := &clock{now: time.Unix(1000, 0)}
	cfg.Now, cfg.Log, cfg.Name = c.Now, slog.New(slog.DiscardHandler), "dns://:53"
	if cfg.MaxTTL == 0 {
		cfg.MaxTTL, cfg.MaxNegativeTTL = time.Hour, time.Hour
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client{r, t, c}
}

// run runs the resolver until the test ends.
func (c client) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	c.t.Cleanup(func() { cancel(); <-done })
}

func query(t testing.TB, name string) *wire.Query {
	t.Helper()
	packed, err := new(dns.Msg).SetQuestion(name, dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	q := new(wire.Query)
	if code, ok := q.Parse(packed); !ok || code != wire.Success {
		t.Fatalf("the question has code %d", code)
	}
	return q
}

// ask returns the answer that a client gets.
func (c client) ask(name string) (*dns.Msg, error) {
	c.t.Helper()
	q := query(c.t, name)
	key := AppendKey(nil, q)
	found := c.Cached(key, c.clock.Now())
	if found == nil {
		var err error
		if found, err = c.Ask(context.Background(), key, q); err != nil {
			return nil, err
		}
	}
	m := new(dns.Msg)
	if err := m.Unpack(found.WriteReply(nil, q, wire.MaxSize, c.clock.Now())); err != nil {
		c.t.Fatal(err)
	}
	return m, nil
}

// check sends a query and compares the first address and its time to live, or the response code.
func (c client) check(name, want string, ttl uint32) {
	c.t.Helper()
	m, err := c.ask(name)
	got, left := "", ttl
	switch {
	case err != nil:
		got = err.Error()
	case len(m.Answer) > 0:
		got, left = m.Answer[0].(*dns.A).A.String(), m.Answer[0].Header().Ttl
	default:
		got = dns.RcodeToString[m.Rcode]
	}
	if got != want || left != ttl {
		c.t.Errorf("%s is %s for %d s, want %s for %d", name, got, left, want, ttl)
	}
}

func TestAnswersAreCachedForTheirTTL(t *testing.T) {
	w := newFakeServer(t, "127.0.0.1:0", replyWith(t, 0, "a.example. 20 IN A 192.0.2.1"))
	c := newClient(t, Config{Servers: []string{w.addr}, MaxTTL: 15 * time.Second, MaxNegativeTTL: 10 * time.Second})
	asked := func(want int64) {
		t.Helper()
		if got := w.queries.Swap(0); got != want {
			t.Errorf("the server was asked %d times, not %d", got, want)
		}
	}
	c.check("a.example.", "192.0.2.1", 20)
	c.clock.advance(5 * time.Second)
	c.check("A.example.", "192.0.2.1", 15)
	asked(1)
	c.clock.advance(10 * time.Second) // longer than answers are cached
	c.check("a.example.", "192.0.2.1", 20)
	asked(1)

	w.setReply(replyWith(t, dns.RcodeNameError, "example. 60 IN SOA ns.example. h.example. 1 2 3 4 5"))
	c.check("none.example.", "NXDOMAIN", 0)
	c.clock.advance(4 * time.Second)
	c.check("none.example.", "NXDOMAIN", 0)
	asked(1)
	c.clock.advance(2 * time.Second) // longer than the SOA record allows
	c.check("none.example.", "NXDOMAIN", 0)
	asked(1)

	w.setReply(replyWith(t, dns.RcodeSuccess, "example. 60 IN SOA ns.example. h.example. 1 2 3 4 60"))
	c.check("nothing.example.", "NOERROR", 0)
	c.clock.advance(11 * time.Second) // longer than negative answers are cached
	c.check("nothing.example.", "NOERROR", 0)
	asked(2)

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
		asked(2)
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
	began := time.Now()
	c.check("a.example.", "192.0.2.1", 20)
	if took := time.Since(began); took < staleWait || took > staleWait+time.Second {
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

func TestFailedServerIsSkippedUntilAProbeSucceeds(t *testing.T) {
	good := newFakeServer(t, "127.0.0.1:0", replyWith(t, 0, "x.example. 0 IN A 192.0.2.2"))
	closed := unusedAddress(t)
	c := newClient(t, Config{Servers: []string{closed, good.addr}, Policy: "sequential"})
	c.Resolver.now = time.Now // probes use the real time
	c.run()
	first := c.pools.Load().all.servers[0]
	for range maxFailures {
		c.check("x.example.", "192.0.2.2", 0)
	}
	if first.isWorking() || c.pools.Load().all.order()[0].addr != good.addr {
		t.Error("a server that failed twice is asked first")
	}
	back := newFakeServer(t, closed, replyWith(t, 0, "x.example. 0 IN A 192.0.2.1"))
	eventually(t, "the server to be asked again", first.isWorking)
	if back.queries.Load() == 0 {
		t.Error("it was not probed")
	}
	c.check("x.example.", "192.0.2.1", 0)
}

func unusedAddress(t *testing.T) string {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	return pc.LocalAddr().String()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(15*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

func TestProbesBackOff(t *testing.T) {
	s, now := &server{}, time.Unix(1000, 0)
	if !s.recordFailure(now) || s.recordFailure(now) {
		t.Error("only the first failure is news")
	}
	var pauses []time.Duration
	for range 9 {
		at, is := s.nextProbe(now)
		if is {
			t.Fatal("probed too early")
		}
		pauses = append(pauses, at.Sub(now))
		now = at
		if _, is := s.nextProbe(now); !is {
			t.Fatal("not probed")
		}
	}
	if pauses[0] != minProbePause || pauses[1] != 2*minProbePause || pauses[8] != maxProbePause {
		t.Errorf("the pauses are %v", pauses)
	}
	s.recordSuccess()
	if at, _ := s.nextProbe(now); !at.IsZero() || !s.isWorking() {
		t.Error("a server that answers is probed")
	}
}

// If a server refuses or fails, the next one is asked. The last response counts.
func TestNextServerIsAskedWhenOneFails(t *testing.T) {
	bad := newFakeServer(t, "127.0.0.1:0", replyWith(t, dns.RcodeRefused))
	good := newFakeServer(t, "127.0.0.1:0", replyWith(t, 0, "x.example. 0 IN A 192.0.2.2"))
	c := newClient(t, Config{Servers: []string{bad.addr, good.addr}, Policy: "sequential"})
	c.check("x.example.", "192.0.2.2", 0)
	only := newClient(t, Config{Servers: []string{bad.addr}})
	only.check("x.example.", "REFUSED", 0)
	noServers := newClient(t, Config{ResolvConf: filepath.Join(t.TempDir(), "none")})
	noServers.check("x.example.", ErrNoServer.Error(), 0)
}

func TestTruncatedAnswerIsFetchedOverTCP(t *testing.T) {
	say := replyWith(t, 0, "x.example. 0 IN A 192.0.2.2")
	w := newFakeServer(t, "127.0.0.1:0", func(q *dns.Msg, tcp bool) *dns.Msg {
		m := say(q, tcp)
		if !tcp {
			m.Truncated, m.Answer = true, nil
		}
		return m
	})
	newClient(t, Config{Servers: []string{w.addr}}).check("x.example.", "192.0.2.2", 0)
}

func TestServerWithoutEDNSIsQueriedWithoutIt(t *testing.T) {
	say := replyWith(t, 0, "x.example. 0 IN A 192.0.2.2")
	w := newFakeServer(t, "127.0.0.1:0", func(q *dns.Msg, tcp bool) *dns.Msg {
		if q.IsEdns0() != nil {
			m := new(dns.Msg).SetRcode(q, dns.RcodeFormatError)
			m.Question = nil
			return m
		}
		return say(q, tcp)
	})
	newClient(t, Config{Servers: []string{w.addr}}).check("x.example.", "192.0.2.2", 0)
}

// A forged response with a guessed ID is ignored.
func TestAnswerToAnotherQuestionIsIgnored(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	right := replyWith(t, 0, "x.example. 0 IN A 192.0.2.2")
	ports, ids := map[string]bool{}, map[uint16]bool{}
	const rounds = 20
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for range rounds {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			q := new(dns.Msg)
			if q.Unpack(buf[:n]) != nil {
				return
			}
			ports[from.String()], ids[q.Id] = true, true
			forged := func(change func(*dns.Msg)) {
				m := replyWith(t, 0, "x.example. 0 IN A 203.0.113.66")(q, false)
				change(m)
				packed, _ := m.Pack()
				_, _ = pc.WriteTo(packed, from)
			}
			forged(func(m *dns.Msg) { m.Id++ })
			forged(func(m *dns.Msg) { m.Question[0].Name = "y.example." })
			forged(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA })
			forged(func(m *dns.Msg) { m.Question = nil })
			forged(func(m *dns.Msg) { m.Response = false })
			_, _ = pc.WriteTo([]byte("nonsense"), from)
			packed, _ := right(q, false).Pack()
			_, _ = pc.WriteTo(packed, from)
		}
	}()
	c := newClient(t, Config{Servers: []string{pc.LocalAddr().String()}})
	for range rounds {
		c.check("x.example.", "192.0.2.2", 0)
	}
	<-done
	if len(ports) < rounds/2 || len(ids) < rounds-2 {
		t.Errorf("%d questions came from %d ports with %d numbers", rounds, len(ports), len(ids))
	}
}

func TestConcurrentEqualQueriesAreSentOnce(t *testing.T) {
	release := make(chan struct{})
	say := replyWith(t, 0, "x.example. 300 IN A 192.0.2.2")
	w := newFakeServer(t, "127.0.0.1:0", func(q *dns.Msg, tcp bool) *dns.Msg { <-release; return say(q, tcp) })
	c := newClient(t, Config{Servers: []string{w.addr}})
	var g sync.WaitGroup
	for range 100 {
		g.Go(func() { c.check("x.example.", "192.0.2.2", 300) })
	}
	eventually(t, "all to wait", func() bool { return len(c.waiting) == 100 })
	close(release)
	g.Wait()
	if n := w.queries.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestConcurrentQueriesAreLimited(t *testing.T) {
	release := make(chan struct{})
	w := newFakeServer(t, "127.0.0.1:0",
		func(q *dns.Msg, _ bool) *dns.Msg { <-release; return new(dns.Msg).SetRcode(q, dns.RcodeNameError) })
	c := newClient(t, Config{Servers: []string{w.addr}})
	var g sync.WaitGroup
	var busy atomic.Int64
	for i := range maxQueries + 50 {
		g.Go(func() {
			if _, err := c.ask("x" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)) +
				".example."); errors.Is(err, ErrBusy) {
				busy.Add(1)
			}
		})
	}
	eventually(t, "the rest to be refused", func() bool { return busy.Load() == 50 })
	close(release)
	g.Wait()
}

func TestQueriesOfADomainGoToItsServers(t *testing.T) {
	all := newFakeServer(t, "127.0.0.1:0", replyWith(t, 0, "x. 0 IN A 192.0.2.1"))
	corp := newFakeServer(t, "127.0.0.1:0", replyWith(t, 0, "x. 0 IN A 192.0.2.2"))
	lab := newFakeServer(t, "127.0.0.1:0", replyWith(t, 0, "x. 0 IN A 192.0.2.3"))
	c := newClient(
		t,
		Config{
			Servers: []string{all.addr},
			Zones:   map[string][]string{"Corp.example": {corp.addr}, "lab.corp.example.": {lab.addr}},
		},
	)
	c.check("x.example.", "192.0.2.1", 0)
	c.check("notcorp.example.", "192.0.2.1", 0)
	c.check("corp.example.", "192.0.2.2", 0)
	c.check("x.CORP.example.", "192.0.2.2", 0)
	c.check("x.lab.corp.example.", "192.0.2.3", 0)
}

func TestPoliciesOrderTheServers(t *testing.T) {
	servers := []*server{{addr: "a"}, {addr: "b"}, {addr: "c"}}
	first := func(policy string) map[string]int {
		p, seen := &pool{servers: servers, policy: policy}, map[string]int{}
		for range 300 {
			seen[p.order()[0].addr]++
		}
		return seen
	}
	if got := first("sequential"); got["a"] != 300 {
		t.Errorf("sequential: %v", got)
	}
	if got := first("round_robin"); got["a"] != 100 || got["b"] != 100 {
		t.Errorf("round robin: %v", got)
	}
	if got := first("random"); len(got) != 3 || got["a"] < 50 {
		t.Errorf("random: %v", got)
	}
	servers[0].failures = maxFailures
	if got := first("sequential"); got["b"] != 300 {
		t.Errorf("one has failed: %v", got)
	}
}

// Two servers that forward to each other would do so forever.
func TestServerThatForwardsBackIsSkipped(t *testing.T) {
	var c client
	var back atomic.Bool
	back.Store(true)
	answer := replyWith(t, 0, "x.example. 0 IN A 192.0.2.1")
	w := newFakeServer(t, "127.0.0.1:0", func(q *dns.Msg, tcp bool) *dns.Msg {
		if q.Question[0].Qtype == dns.TypeHINFO && back.Load() {
			if !c.IsLoopQuery(&query(t, q.Question[0].Name).Name) {
				t.Error("the question is not known again")
			}
			return new(dns.Msg).SetRcode(q, dns.RcodeRefused)
		}
		return answer(q, tcp)
	})
	c = newClient(t, Config{Servers: []string{w.addr}})
	if c.IsLoopQuery(&query(t, "00ff."+loopDomain).Name) || c.IsLoopQuery(&query(t, "a.b.clusterctl.").Name) {
		t.Error("somebody else's question is taken for its own")
	}
	c.findLoops(context.Background())
	c.check("x.example.", ErrNoServer.Error(), 0)
	back.Store(false)
	c.findLoops(context.Background())
	c.clock.advance(2 * failureTTL)
	c.check("x.example.", "192.0.2.1", 0)
}

func TestChangesOfResolvConfAreApplied(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("nameserver 127.9.9.1\nsearch example\n")
	c := newClient(t, Config{ResolvConf: file})
	has := func(want string) func() bool {
		return func() bool { return strings.Join(c.Servers(), " ") == want }
	}
	if !has("127.9.9.1:53")() {
		t.Fatalf("the servers are %v", c.Servers())
	}
	c.run()
	kept := c.pools.Load().all.servers[0]
	write("nameserver 127.9.9.2\nnameserver 127.9.9.1\nnameserver ::1\n")
	eventually(t, "new servers", has("127.9.9.2:53 127.9.9.1:53 [::1]:53"))
	if c.pools.Load().all.servers[1] != kept {
		t.Error("a server that stays is forgotten")
	}
	// An empty or missing file is in the process of being written.
	before := c.pools.Load()
	for _, spoil := range []func() error{func() error { return os.WriteFile(file, nil, 0o600) },
		func() error { return os.Remove(file) }} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if after, err := newPools(c.cfg, before); err == nil && len(after.all.servers) > 0 {
			t.Errorf("servers out of nothing: %v", after.all.addresses())
		}
	}
	write("nameserver 127.9.9.3\n")
	eventually(t, "other servers", has("127.9.9.3:53"))
}

func TestAddressParsesAServer(t *testing.T) {
	var got []string
	for _, text := range []string{"192.0.2.1", "192.0.2.1:5353", "2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:5353",
		"name.example", ""} {
		at, err := Address(text)
		if err != nil {
			got = append(got, "wrong")
			continue
		}
		got = append(got, at.String())
	}
	want := []string{
		"192.0.2.1:53",
		"192.0.2.1:5353",
		"[2001:db8::1]:53",
		"[2001:db8::1]:53",
		"[2001:db8::1]:5353",
		"wrong",
		"wrong",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
