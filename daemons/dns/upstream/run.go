package upstream

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"clusterctl/daemons/dns/wire"
)

const (
	fileInterval = 2 * time.Second // how often the machine's file is read
	loopInterval = time.Minute     // how often servers are checked for loops
)

// Run watches the machine's name servers, probes failed servers, and detects forwarding loops, until ctx ends. Then it
// waits for the running queries.
func (r *Resolver) Run(ctx context.Context) {
	var g sync.WaitGroup
	g.Go(func() { r.probe(ctx) })
	g.Go(func() { r.watch(ctx) })
	g.Wait()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
}

// watch watches the file. It looks for loops at the start, when servers have changed, and periodically.
func (r *Resolver) watch(ctx context.Context) {
	tick := time.NewTicker(fileInterval)
	defer tick.Stop()
	r.findLoops(ctx)
	checked, failing := time.Now(), ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed := false
		if len(r.cfg.Servers) == 0 {
			before := r.pools.Load()
			after, err := newPools(r.cfg, before)
			switch {
			case err != nil:
				// Keep the servers if the file cannot be read: it may be in the process of being written.
				if failing != err.Error() {
					r.log.Warn("follow the machine's name servers; those that it had are asked", "error", err)
				}
				failing = err.Error()
			case len(after.all.servers) == 0 && len(before.all.servers) > 0:
			case !slices.Equal(before.all.servers, after.all.servers):
				r.pools.Store(after)
				r.metrics.removeSeries(before, after)
				r.log.Info("the machine's name servers have changed", "servers", after.all.addresses())
				changed = true
			}
			if err == nil {
				failing = ""
			}
		}
		if changed || time.Since(checked) >= loopInterval {
			r.findLoops(ctx)
			checked = time.Now()
		}
	}
}

func (p *pool) addresses() (list []string) {
	for _, s := range p.servers {
		list = append(list, s.addr)
	}
	return list
}

// Servers returns the servers for names without their own zone in the configuration.
func (r *Resolver) Servers() []string { return r.pools.Load().all.addresses() }

// probe probes failed servers until they respond.
func (r *Resolver) probe(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var g sync.WaitGroup
	defer g.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.serverFailed:
		case <-timer.C:
		}
		next, broken, all := time.Hour, true, r.pools.Load()
		for _, s := range all.byAddr {
			broken = broken && !s.isWorking()
			at, ok := s.nextProbe(r.now())
			if at.IsZero() {
				continue
			}
			next = min(next, max(at.Sub(r.now()), time.Millisecond))
			if ok {
				g.Go(func() { r.probeServer(ctx, s) })
			}
		}
		if broken && len(all.byAddr) > 0 {
			r.metrics.allFailed.Inc()
		}
		timer.Reset(next)
	}
}

// probeServer queries the name servers of the root, which every server can answer.
func (r *Resolver) probeServer(ctx context.Context, s *server) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	m := new(dns.Msg).SetQuestion(".", dns.TypeNS)
	if _, err := s.exchange(ctx, m); err != nil {
		if ctx.Err() == nil || context.Cause(ctx) == context.DeadlineExceeded {
			r.metrics.failures.WithLabelValues(s.addr).Inc()
			s.recordFailure(r.now())
		}
		return
	}
	r.log.Info("the name server answers again", "server", s.addr)
	s.recordSuccess()
}

// loops holds the queries that were sent to detect forwarding loops.
type loops struct {
	mu      sync.Mutex
	pending map[string]*server // by first label
}

// loopDomain is the domain of these queries. It does not exist.
const loopDomain = "dns-loop-check.clusterctl."

// findLoops sends a unique query to every server. If the query comes back, IsLoopQuery recognizes it.
func (r *Resolver) findLoops(ctx context.Context) {
	var g sync.WaitGroup
	for _, s := range r.pools.Load().byAddr {
		g.Go(func() {
			token := make([]byte, 16)
			for i := range token {
				token[i] = byte(rand.Uint32())
			}
			label := hex.EncodeToString(token)
			r.loops.mu.Lock()
			r.loops.pending[label] = s
			r.loops.mu.Unlock()
			ctx, cancel := context.WithTimeout(ctx, serverTimeout)
			defer cancel()
			_, err := s.exchange(ctx, new(dns.Msg).SetQuestion(label+"."+loopDomain, dns.TypeHINFO))
			r.loops.mu.Lock()
			_, unseen := r.loops.pending[label]
			delete(r.loops.pending, label)
			r.loops.mu.Unlock()
			if unseen && err == nil && s.isLoop.Swap(false) {
				r.log.Info("the name server does not ask this one any more, and is asked again", "server", s.addr)
			}
		})
	}
	g.Wait()
}

// IsLoopQuery reports whether a query was sent by findLoops. If so, it stops using the server that sent it back.
func (r *Resolver) IsLoopQuery(name *wire.Name) bool {
	if name.Labels() != 3 || string(name.Label(2)) != "clusterctl" ||
		name.String() != string(name.Label(0))+"."+loopDomain {
		return false
	}
	r.loops.mu.Lock()
	defer r.loops.mu.Unlock()
	label := strings.ToLower(string(name.Label(0)))
	s := r.loops.pending[label]
	if s == nil {
		return false
	}
	delete(r.loops.pending, label)
	if !s.isLoop.Swap(true) {
		r.log.Error("a name server asks this one what it is asked by it: it is left out", "server", s.addr)
	}
	return true
}
