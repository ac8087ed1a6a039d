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
	// queryTimeout limits a query to all servers together. Clients wait for 5 seconds.
	queryTimeout = 4500 * time.Millisecond
	// staleWait is how long a client waits for a newer answer if there is an expired one (RFC 8767).
	staleWait = 1800 * time.Millisecond
	// staleRetryDelay is how long an expired answer is given without asking again, after asking has failed.
	staleRetryDelay = 5 * time.Second
	// failureTTL is how long a failure of all servers is cached (RFC 9520).
	failureTTL = time.Second
	// maxQueries limits the concurrent queries to other servers. Further ones are refused, so that a flood of them does
	// not affect the cluster's names.
	maxQueries = 1000
	// maxWaiting limits the clients that wait for answers of other servers.
	maxWaiting = 4000
)

// Config configures a Resolver.
type Config struct {
	Servers        []string              // host:port; empty means those of ResolvConf
	ResolvConf     string                // file that is watched
	Zones          map[string][]string   // servers by domain
	IsSelf         func(netip.Addr) bool // reports whether queries to an address come back to this server
	Policy         string                // random, round_robin or sequential; empty means random
	MaxTTL         time.Duration         // longest time to cache an answer
	MaxNegativeTTL time.Duration         // longest time to cache a negative answer
	StaleFor       time.Duration         // how long an expired answer may be used if no server responds
	Now            func() time.Time      // nil means time.Now
	Log            *slog.Logger          // required
	Name           string                // name of this server in metrics
}

// Resolver queries other servers. Its methods are safe for concurrent use.
type Resolver struct {
	cfg          Config
	now          func() time.Time
	log          *slog.Logger
	cache        *cache
	pools        atomic.Pointer[pools]
	metrics      *metrics
	waiting      chan struct{}
	serverFailed chan struct{} // signals that a server has failed
	loops        loops

	mu      sync.Mutex
	lookups map[string]*lookup
	closed  bool
	running sync.WaitGroup
}

// lookup is a running query. done is closed when found or err is set.
type lookup struct {
	done     chan struct{}
	response *Response
	err      error
}

// ErrNoServer and ErrBusy are the reasons why no server was asked.
var (
	ErrNoServer = errors.New("there is no other server to ask")
	ErrBusy     = errors.New("too many questions to other servers are open")
)

// New returns a resolver with its servers. It starts no goroutine.
func New(cfg Config) (*Resolver, error) {
	r := &Resolver{
		cfg:          cfg,
		now:          cfg.Now,
		log:          cfg.Log,
		cache:        newCache(),
		waiting:      make(chan struct{}, maxWaiting),
		serverFailed: make(chan struct{}, 1),
		lookups:      map[string]*lookup{},
	}
	if r.now == nil {
		r.now = time.Now
	}
	r.metrics = newMetrics(r)
	r.loops.pending = map[string]*server{}
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
	for i, flag := range []bool{q.RecursionDesired(), q.CheckingDisabled(), q.DO} {
		if flag {
			wishes |= 1 << i
		}
	}
	return append(append(b, q.Name.From(0)...), byte(q.Type>>8), byte(q.Type), byte(q.Class>>8), byte(q.Class), wishes)
}

// Cached returns an unexpired answer from the cache, or nil.
func (r *Resolver) Cached(key []byte, now time.Time) *Response {
	r.metrics.lookups.Inc()
	found, _ := r.cache.get(key, now)
	if found == nil || !now.Before(found.expires) {
		return nil
	}
	r.metrics.recordHit(found)
	return found
}

// Ask returns the answer of other servers. If they do not respond in time, it returns an expired answer from the cache,
// if there is one.
func (r *Resolver) Ask(ctx context.Context, key []byte, q *wire.Query) (*Response, error) {
	old, again := r.cache.get(key, r.now())
	if old != nil && r.now().Before(old.expires) {
		return old, nil // it was cached in the meantime
	}
	if old == nil {
		r.metrics.misses.Inc()
	}
	if old != nil && !again {
		return r.serveStale(old), nil
	}
	select {
	case r.waiting <- struct{}{}:
		defer func() { <-r.waiting }()
	default:
		r.metrics.rejected.Inc()
		if old != nil {
			return r.serveStale(old), nil
		}
		return nil, ErrBusy
	}
	f, err := r.startLookup(ctx, key, q)
	if err != nil {
		if old != nil {
			return r.serveStale(old), nil
		}
		return nil, err
	}
	wait := queryTimeout
	if old != nil {
		wait = staleWait
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-f.done:
		if f.err == nil && (old == nil || !isFailure(f.response.answer.Code())) {
			return f.response, nil
		}
		err = f.err
	case <-timer.C:
		err = errors.New("no server has answered yet")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if old != nil {
		return r.serveStale(old), nil
	}
	return nil, err
}

func (r *Resolver) serveStale(old *Response) *Response {
	r.metrics.stale.Inc()
	return old
}

// startLookup starts a query, or returns a running one with the same key.
func (r *Resolver) startLookup(ctx context.Context, key []byte, q *wire.Query) (*lookup, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.lookups[string(key)]; f != nil {
		return f, nil
	}
	to := r.pools.Load().poolFor(&q.Name)
	if len(to.servers) == 0 {
		return nil, ErrNoServer
	}
	if r.closed || len(r.lookups) >= maxQueries {
		r.metrics.rejected.Inc()
		return nil, ErrBusy
	}
	m := &dns.Msg{Question: []dns.Question{{Name: q.Name.String(), Qtype: q.Type, Qclass: q.Class}}}
	m.RecursionDesired, m.CheckingDisabled, m.AuthenticatedData = q.RecursionDesired(), q.CheckingDisabled(), true
	m.SetEdns0(wire.UDPSize, q.DO)
	f, own := &lookup{done: make(chan struct{})}, string(key)
	r.lookups[own] = f
	r.running.Go(func() {
		// The client that started the query may disconnect. Other clients may wait for the same answer, and later ones
		// use the cache.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
		defer cancel()
		f.response, f.err = r.queryServers(ctx, []byte(own), m, to)
		r.mu.Lock()
		delete(r.lookups, own)
		r.mu.Unlock()
		close(f.done)
	})
	return f, nil
}

// queryServers queries servers one after the other, each at most twice, and caches the answer.
func (r *Resolver) queryServers(ctx context.Context, key []byte, m *dns.Msg, to *pool) (*Response, error) {
	list := to.order()
	if len(list) == 0 {
		return nil, ErrNoServer
	}
	var failures []error
	var last *dns.Msg
	for i := range 2 * len(list) {
		s := list[i%len(list)]
		reply, err := r.queryServer(ctx, s, m)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", s.addr, err))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		last = reply
		if !isFailure(reply.Rcode) || i+1 >= len(list) {
			break
		}
	}
	now := r.now()
	if last == nil {
		r.cache.recordFailure(key, now.Add(staleRetryDelay))
		err := fmt.Errorf("ask other servers: %w", errors.Join(failures...))
		last = new(dns.Msg)
		last.SetRcode(m, dns.RcodeServerFailure)
		if found, bad := newResponse(last, now); bad == nil {
			r.cacheResponse(key, found, failureTTL, 0)
		}
		return nil, err
	}
	found, err := newResponse(last, now)
	if err != nil {
		return nil, err
	}
	if isFailure(last.Rcode) {
		r.cache.recordFailure(key, now.Add(staleRetryDelay))
		r.cacheResponse(key, found, failureTTL, 0)
		return found, nil
	}
	maximum, life := r.cfg.MaxTTL, lifetime(last)
	if len(last.Answer) == 0 || last.Rcode == dns.RcodeNameError {
		maximum = r.cfg.MaxNegativeTTL
	}
	r.cacheResponse(key, found, min(life, maximum), r.cfg.StaleFor)
	return found, nil
}

// queryServer queries one server with a time limit, and records whether it works.
func (r *Resolver) queryServer(ctx context.Context, s *server, m *dns.Msg) (*dns.Msg, error) {
	start := time.Now()
	one, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	reply, err := s.exchange(one, m)
	if err != nil {
		r.metrics.recordQuery(s.addr, "", time.Since(start))
		if s.recordFailure(r.now()) {
			r.log.Warn("a name server fails and is passed over until it answers", "server", s.addr, "error", err)
			select {
			case r.serverFailed <- struct{}{}:
			default:
			}
		}
		return nil, err
	}
	s.recordSuccess()
	r.metrics.recordQuery(s.addr, dns.RcodeToString[reply.Rcode], time.Since(start))
	return reply, nil
}

// isFailure reports whether a response code means that a server has failed, not that the name or record does not exist.
func isFailure(code int) bool {
	return code != dns.RcodeSuccess && code != dns.RcodeNameError
}

// newResponse converts a response for caching.
func newResponse(m *dns.Msg, now time.Time) (*Response, error) {
	m = m.Copy()
	m.Extra = removeEDNS(m.Extra)
	m.Compress, m.Authoritative, m.Rcode = true, false, m.Rcode&15
	packed, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("pack the answer: %w", err)
	}
	answer, err := wire.NewStored(packed)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return &Response{answer: answer, storedAt: now, expires: now, staleUntil: now}, nil
}

// removeEDNS removes the EDNS record, which is specific to one hop.
func removeEDNS(extra []dns.RR) (left []dns.RR) {
	for _, rr := range extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			left = append(left, rr)
		}
	}
	return left
}

// cacheResponse caches an answer for life, and as expired answer for stale. A failure does not replace an expired
// answer.
func (r *Resolver) cacheResponse(key []byte, found *Response, life, stale time.Duration) {
	found.expires = found.storedAt.Add(life)
	found.staleUntil = found.expires.Add(stale)
	if life <= 0 {
		return
	}
	if old, _ := r.cache.get(key, found.storedAt); old != nil && isFailure(found.answer.Code()) &&
		!isFailure(old.answer.Code()) {
		return
	}
	r.cache.put(key, found)
}

// lifetime returns how long an answer may be cached. For a negative answer, the SOA record decides (RFC 2308).
func lifetime(m *dns.Msg) time.Duration {
	const week = 7 * 24 * 3600
	minimum, denied := uint32(week), false
	for i, rr := range append(m.Answer[:len(m.Answer):len(m.Answer)], m.Ns...) {
		ttl := rr.Header().Ttl
		if soa, ok := rr.(*dns.SOA); ok && i >= len(m.Answer) {
			ttl, denied = min(ttl, soa.Minttl), true
		}
		if ttl > 1<<31 { // treated as zero according to RFC 2181
			ttl = 0
		}
		minimum = min(minimum, ttl)
	}
	if !denied && (m.Rcode == dns.RcodeNameError || len(m.Answer) == 0) {
		return 0
	}
	return time.Duration(minimum) * time.Second
}
