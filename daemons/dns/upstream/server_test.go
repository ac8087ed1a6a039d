package upstream

import (
	"context"
	"log/slog"
	"net"
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

// fakeServer is another name server. It answers over both protocols with the result of reply. A nil result means no
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
			t.Fatalf("timed out waiting for %s", what)
		case <-tick.C:
		}
	}
}
