// Package upstream queries other name servers about names outside of the cluster. It selects the servers, retries, and
// caches answers (RFC 2308, RFC 8767). It does not know the cluster's names nor the clients.
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
	// askTime limits a query to all servers together. Clients wait for 5 seconds.
	askTime = 4500 * time.Millisecond
	// patience is how long a client waits for a newer answer if there is an expired one (RFC 8767).
	patience = 1800 * time.Millisecond
	// recheck is how long an expired answer is given without asking again, after asking has failed.
	recheck = 5 * time.Second
	// failTime is how long a failure of all servers is cached (RFC 9520).
	failTime = time.Second
	// maxAsking limits the concurrent queries to other servers. Further ones are refused, so that a flood of them does
	// not affect the cluster's names.
	maxAsking = 1000
	// maxWaiting limits the clients that wait for answers of other servers.
	maxWaiting = 4000
)

// Config configures a Resolver.
type Config struct {
	Servers    []string              // host:port; empty means those of ResolvConf
	ResolvConf string                // file that is watched
	Zones      map[string][]string   // servers by domain
	Self       func(netip.Addr) bool // reports whether queries to an address come back to this server
	Policy     string                // random, round_robin or sequential; empty means random
	MaxTTL     time.Duration         // longest time to cache an answer
	MaxDenied  time.Duration         // longest time to cache a negative answer
	Stale      time.Duration         // how long an expired answer may be used if no server responds
	Now        func() time.Time      // nil means time.Now
	Log        *slog.Logger          // required
	Name       string                // name of this server in metrics
}

// Resolver queries other servers. Its methods are safe for concurrent use.
type Resolver struct {
	cfg     Config
	now     func() time.Time
	log     *slog.Logger
	cache   *cache
	pools   atomic.Pointer[pools]
	told    *metrics
	waiting chan struct{}
	news    chan struct{} // signals that a server has failed
	loops   loops

	mu      sync.Mutex
	flights map[string]*flight
	closed  bool
	flying  sync.WaitGroup
}

// flight is a running query. done is closed when found or err is set.
type flight struct {
	done  chan struct{}
	found *Found
	err   error
}

// ErrNobody and ErrBusy are the reasons why no server was asked.
var (
	ErrNobody = errors.New("there is no other server to ask")
	ErrBusy   = errors.New("too many questions to other servers are open")
)

// New returns a resolver with its servers. It starts no goroutine.
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

// AppendKey appends the cache key of a query: name, type, class, and the flags that affect the answer.
func AppendKey(b []byte, q *wire.Query) []byte {
	var wishes byte
	for i, is := range []bool{q.RecursionDesired(), q.CheckingDisabled(), q.DO} {
		if is {
			wishes |= 1 << i
		}
	}
	return append(append(b, q.Name.From(0)...), byte(q.Type>>8), byte(q.Type), byte(q.Class>>8), byte(q.Class), wishes)
}

// Cached returns an unexpired answer from the cache, or nil.
func (r *Resolver) Cached(key []byte, now time.Time) *Found {
	r.told.lookups.Inc()
	found, _ := r.cache.get(key, now)
	if found == nil || !now.Before(found.until) {
		return nil
	}
	r.told.hit(found)
	return found
}

// Ask returns the answer of other servers. If they do not respond in time, it returns an expired answer from the cache,
// if there is one.
func (r *Resolver) Ask(ctx context.Context, key []byte, q *wire.Query) (*Found, error) {
	old, again := r.cache.get(key, r.now())
	if old != nil && r.now().Before(old.until) {
		return old, nil // it was cached in the meantime
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

// join starts a query, or returns a running one with the same key.
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
		// The client that started the query may disconnect. Other clients may wait for the same answer, and later ones
		// use the cache.
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

// fly queries servers one after the other, each at most twice, and caches the answer.
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

// try queries one server with a time limit, and records whether it works.
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

// failure reports whether a response code means that a server has failed, not that the name or record does not exist.
func failure(code int) bool {
	return code != dns.RcodeSuccess && code != dns.RcodeNameError
}

// store converts a response for caching.
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

// without removes the EDNS record, which is specific to one hop.
func without(extra []dns.RR) (left []dns.RR) {
	for _, rr := range extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			left = append(left, rr)
		}
	}
	return left
}

// keep caches an answer for life, and as expired answer for stale. A failure does not replace an expired answer.
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

// lifetime returns how long an answer may be cached. For a negative answer, the SOA record decides (RFC 2308).
func lifetime(m *dns.Msg) time.Duration {
	const week = 7 * 24 * 3600
	least, denied := uint32(week), false
	for i, rr := range append(m.Answer[:len(m.Answer):len(m.Answer)], m.Ns...) {
		ttl := rr.Header().Ttl
		if soa, ok := rr.(*dns.SOA); ok && i >= len(m.Answer) {
			ttl, denied = min(ttl, soa.Minttl), true
		}
		if ttl > 1<<31 { // treated as zero according to RFC 2181
			ttl = 0
		}
		least = min(least, ttl)
	}
	if !denied && (m.Rcode == dns.RcodeNameError || len(m.Answer) == 0) {
		return 0
	}
	return time.Duration(least) * time.Second
}
