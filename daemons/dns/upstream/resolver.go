// Package upstream asks other name servers about what is not the cluster's: which of them, how often, and for how long
// their answers are kept (RFC 2308, RFC 8767). What the cluster's names are, and how clients are spoken to, is not its
// business.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"clusterctl/daemons/dns/wire"
)

const (
	// askTime is how long all servers together have to answer. Clients wait for 5 seconds.
	askTime = 4500 * time.Millisecond
	// patience is how long a client waits for an answer when there is one that is out of date (RFC 8767).
	patience = 1800 * time.Millisecond
	// recheck is for how long an answer that is out of date is given without asking again, once that has failed.
	recheck = 5 * time.Second
	// failTime is for how long it is kept that no server had an answer (RFC 9520).
	failTime = time.Second
	// maxAsking is how many questions to other servers may be open at once. More are refused, so that a flood of them
	// does not take the cluster's own names down.
	maxAsking = 1000
	// maxWaiting is how many clients may wait for answers to them.
	maxWaiting = 4000
)

// Config says whom to ask.
type Config struct {
	Servers    []string              // host:port; empty: those of ResolvConf
	ResolvConf string                // file that is followed
	Zones      map[string][]string   // servers for the names of a domain
	Self       func(netip.Addr) bool // whether questions to an address come back here
	Policy     string                // random, round_robin or sequential; empty means random
	MaxTTL     time.Duration         // answers are kept for so long at most
	MaxDenied  time.Duration         // and those that say that there is none
	Stale      time.Duration         // for how long an answer may be given after that, when no server answers
	Now        func() time.Time      // nil means time.Now
	Log        *slog.Logger          // required
	Name       string                // of this server in metrics
}

// Resolver asks other servers. Its methods may be called from many goroutines at once.
type Resolver struct {
	cfg     Config
	now     func() time.Time
	log     *slog.Logger
	cache   *cache
	pools   atomic.Pointer[pools]
	told    *metrics
	waiting chan struct{}
	news    chan struct{} // a server has failed
	loops   loops

	mu      sync.Mutex
	flights map[string]*flight
	closed  bool
	flying  sync.WaitGroup
}

// flight is a question that is being asked. done is closed when found or err is there.
type flight struct {
	done  chan struct{}
	found *Found
	err   error
}

// Errors that say why nobody was asked.
var (
	ErrNobody = errors.New("there is no other server to ask")
	ErrBusy   = errors.New("too many questions to other servers are open")
)

// New returns a resolver that knows its servers. Nothing runs yet.
func New(cfg Config) (*Resolver, error) {
	r := &Resolver{
		cfg:     cfg,
		now:     cfg.Now,
		log:     cfg.Log,
		cache:   newCache(),
		waiting: make(chan struct{}, maxWaiting),
		news:    make(chan struct{}, 1),
		flights: map[string]*flight{},
	}
	if r.now == nil {
		r.now = time.Now
	}
	r.told = newMetrics(r)
	r.loops.open = map[string]*server{}
	all, err := newPools(cfg, nil)
	if err != nil {
		return nil, err
	}
	r.pools.Store(all)
	return r, nil
}

// AppendKey appends what tells a question from others: name, type, class, and what of the client's wishes changes the
// answer.
func AppendKey(b []byte, q *wire.Query) []byte {
	var wishes byte
	for i, is := range []bool{q.RecursionDesired(), q.CheckingDisabled(), q.DO} {
		if is {
			wishes |= 1 << i
		}
	}
	return append(append(b, q.Name.From(0)...), byte(q.Type>>8), byte(q.Type), byte(q.Class>>8), byte(q.Class), wishes)
}

// Cached returns an answer that is kept and up to date, or nil.
func (r *Resolver) Cached(key []byte, now time.Time) *Found {
	r.told.lookups.Inc()
	found, _ := r.cache.get(key, now)
	if found == nil || !now.Before(found.until) {
		return nil
	}
	r.told.hit(found)
	return found
}

// Ask returns other servers' answer, or one that is kept and out of date when they have none in time.
func (r *Resolver) Ask(ctx context.Context, key []byte, q *wire.Query) (*Found, error) {
	old, again := r.cache.get(key, r.now())
	if old != nil && r.now().Before(old.until) {
		return old, nil // it came while this client did
	}
	if old == nil {
		r.told.misses.Inc()
	}
	if old != nil && !again {
		return r.stale(old), nil
	}
	select {
	case r.waiting <- struct{}{}:
		defer func() { <-r.waiting }()
	default:
		r.told.rejected.Inc()
		if old != nil {
			return r.stale(old), nil
		}
		return nil, ErrBusy
	}
	f, err := r.join(ctx, key, q)
	if err != nil {
		if old != nil {
			return r.stale(old), nil
		}
		return nil, err
	}
	wait := askTime
	if old != nil {
		wait = patience
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-f.done:
		if f.err == nil && (old == nil || !failure(f.found.answer.Code())) {
			return f.found, nil
		}
		err = f.err
	case <-timer.C:
		err = errors.New("no server has answered yet")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if old != nil {
		return r.stale(old), nil
	}
	return nil, err
}

func (r *Resolver) stale(old *Found) *Found {
	r.told.stale.Inc()
	return old
}

// join asks a question, or waits with others who ask the same.
func (r *Resolver) join(ctx context.Context, key []byte, q *wire.Query) (*flight, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.flights[string(key)]; f != nil {
		return f, nil
	}
	to := r.pools.Load().of(&q.Name)
	if len(to.servers) == 0 {
		return nil, ErrNobody
	}
	if r.closed || len(r.flights) >= maxAsking {
		r.told.rejected.Inc()
		return nil, ErrBusy
	}
	m := &dns.Msg{Question: []dns.Question{{Name: q.Name.String(), Qtype: q.Type, Qclass: q.Class}}}
	m.RecursionDesired, m.CheckingDisabled, m.AuthenticatedData = q.RecursionDesired(), q.CheckingDisabled(), true
	m.SetEdns0(wire.UDPSize, q.DO)
	f, own := &flight{done: make(chan struct{})}, string(key)
	r.flights[own] = f
	r.flying.Go(func() {
		// The client that asked first may leave. Others wait for the same answer, and the next try asks for them.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		f.found, f.err = r.fly(ctx, []byte(own), m, to)
		r.mu.Lock()
		delete(r.flights, own)
		r.mu.Unlock()
		close(f.done)
	})
	return f, nil
}

// fly asks servers one after the other, each of them twice at most, and keeps what they say.
func (r *Resolver) fly(ctx context.Context, key []byte, m *dns.Msg, to *pool) (*Found, error) {
	list := to.order()
	if len(list) == 0 {
		return nil, ErrNobody
	}
	var failures []error
	var last *dns.Msg
	for i := range 2 * len(list) {
		s := list[i%len(list)]
		reply, err := r.try(ctx, s, m)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", s.addr, err))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		last = reply
		if !failure(reply.Rcode) || i+1 >= len(list) {
			break
		}
	}
	now := r.now()
	if last == nil {
		r.cache.failed(key, now.Add(recheck))
		err := fmt.Errorf("ask other servers: %w", errors.Join(failures...))
		last = new(dns.Msg)
		last.SetRcode(m, dns.RcodeServerFailure)
		if found, bad := store(last, now); bad == nil {
			r.keep(key, found, failTime, 0)
		}
		return nil, err
	}
	found, err := store(last, now)
	if err != nil {
		return nil, err
	}
	if failure(last.Rcode) {
		r.cache.failed(key, now.Add(recheck))
		r.keep(key, found, failTime, 0)
		return found, nil
	}
	most, life := r.cfg.MaxTTL, lifetime(last)
	if len(last.Answer) == 0 || last.Rcode == dns.RcodeNameError {
		most = r.cfg.MaxDenied
	}
	r.keep(key, found, min(life, most), r.cfg.Stale)
	return found, nil
}

// try asks one server within its time, and notes how well it is.
func (r *Resolver) try(ctx context.Context, s *server, m *dns.Msg) (*dns.Msg, error) {
	began := time.Now()
	one, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	reply, err := s.exchange(one, m)
	if err != nil {
		r.told.asked(s.addr, "", time.Since(began))
		if s.failed(r.now()) {
			r.log.Warn("a name server fails and is passed over until it answers", "server", s.addr, "error", err)
			select {
			case r.news <- struct{}{}:
			default:
			}
		}
		return nil, err
	}
	s.answered()
	r.told.asked(s.addr, dns.RcodeToString[reply.Rcode], time.Since(began))
	return reply, nil
}

// failure reports whether a code says that a server had no answer, rather than that there is none.
func failure(code int) bool {
	return code != dns.RcodeSuccess && code != dns.RcodeNameError
}

// store makes an answer fit to be given to others.
func store(m *dns.Msg, now time.Time) (*Found, error) {
	m = m.Copy()
	m.Extra = without(m.Extra)
	m.Compress, m.Authoritative, m.Rcode = true, false, m.Rcode&15
	packed, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("pack the answer: %w", err)
	}
	answer, err := wire.NewStored(packed)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return &Found{answer: answer, since: now, until: now, stale: now}, nil
}

// without leaves EDNS's record out, which is about one hop alone.
func without(extra []dns.RR) (left []dns.RR) {
	for _, rr := range extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			left = append(left, rr)
		}
	}
	return left
}

// keep keeps an answer for its life, and stale for what comes after. One that is out of date is better than a failure.
func (r *Resolver) keep(key []byte, found *Found, life, stale time.Duration) {
	found.until = found.since.Add(life)
	found.stale = found.until.Add(stale)
	if life <= 0 {
		return
	}
	if old, _ := r.cache.get(key, found.since); old != nil && failure(found.answer.Code()) &&
		!failure(old.answer.Code()) {
		return
	}
	r.cache.put(key, found)
}

// lifetime is for how long an answer may be kept: that there is none, only as long as the zone says (RFC 2308).
func lifetime(m *dns.Msg) time.Duration {
	const week = 7 * 24 * 3600
	least, denied := uint32(week), false
	for i, rr := range append(m.Answer[:len(m.Answer):len(m.Answer)], m.Ns...) {
		ttl := rr.Header().Ttl
		if soa, ok := rr.(*dns.SOA); ok && i >= len(m.Answer) {
			ttl, denied = min(ttl, soa.Minttl), true
		}
		if ttl > 1<<31 { // as RFC 2181 reads it
			ttl = 0
		}
		least = min(least, ttl)
	}
	if !denied && (m.Rcode == dns.RcodeNameError || len(m.Answer) == 0) {
		return 0
	}
	return time.Duration(least) * time.Second
}
