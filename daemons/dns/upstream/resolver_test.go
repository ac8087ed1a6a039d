package upstream

import (
	"context"
	"errors"
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
)

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

func TestProbesBackOff(t *testing.T) {
	s, now := &server{}, time.Unix(1000, 0)
	if !s.recordFailure(now) || s.recordFailure(now) {
		t.Error("only the first failure is news")
	}
	var pauses []time.Duration
	for range 9 {
		at, ok := s.nextProbe(now)
		if ok {
			t.Fatal("probed too early")
		}
		pauses = append(pauses, at.Sub(now))
		now = at
		if _, isReply := s.nextProbe(now); !isReply {
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
		t.Error("a query of another client is taken for its own")
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
	contains := func(want string) func() bool {
		return func() bool { return strings.Join(c.Servers(), " ") == want }
	}
	if !contains("127.9.9.1:53")() {
		t.Fatalf("the servers are %v", c.Servers())
	}
	c.run()
	kept := c.pools.Load().all.servers[0]
	write("nameserver 127.9.9.2\nnameserver 127.9.9.1\nnameserver ::1\n")
	eventually(t, "new servers", contains("127.9.9.2:53 127.9.9.1:53 [::1]:53"))
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
	eventually(t, "other servers", contains("127.9.9.3:53"))
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
