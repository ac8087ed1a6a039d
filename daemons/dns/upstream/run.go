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
	followEvery = 2 * time.Second // the machine's file is read so often
	loopEvery   = time.Minute     // and servers are tried so often for asking back
)

// Run follows the machine's name servers, probes those that failed and finds those that ask back, until ctx ends. Then
// it waits for the questions that are open.
func (r *Resolver) Run(ctx context.Context) {
	var g sync.WaitGroup
	g.Go(func() { r.probe(ctx) })
	g.Go(func() { r.watch(ctx) })
	g.Wait()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.flying.Wait()
}

// watch follows the file, and looks for loops at the start, when servers have changed, and now and then.
func (r *Resolver) watch(ctx context.Context) {
	tick := time.NewTicker(followEvery)
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
				// A file that is just being written is no reason to forget the servers.
				if failing != err.Error() {
					r.log.Warn("follow the machine's name servers; those that it had are asked", "error", err)
				}
				failing = err.Error()
			case len(after.all.servers) == 0 && len(before.all.servers) > 0:
			case !slices.Equal(before.all.servers, after.all.servers):
				r.pools.Store(after)
				r.told.forget(before, after)
				r.log.Info("the machine's name servers have changed", "servers", after.all.names())
				changed = true
			}
			if err == nil {
				failing = ""
			}
		}
		if changed || time.Since(checked) >= loopEvery {
			r.findLoops(ctx)
			checked = time.Now()
		}
	}
}

func (p *pool) names() (list []string) {
	for _, s := range p.servers {
		list = append(list, s.addr)
	}
	return list
}

// Servers are those for names that no zone of the configuration is about.
func (r *Resolver) Servers() []string { return r.pools.Load().all.names() }

// probe asks servers that failed whether they are back.
func (r *Resolver) probe(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var g sync.WaitGroup
	defer g.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.news:
		case <-timer.C:
		}
		next, broken, all := time.Hour, true, r.pools.Load()
		for _, s := range all.byAddr {
			broken = broken && !s.well()
			at, is := s.due(r.now())
			if at.IsZero() {
				continue
			}
			next = min(next, max(at.Sub(r.now()), time.Millisecond))
			if is {
				g.Go(func() { r.probeOne(ctx, s) })
			}
		}
		if broken && len(all.byAddr) > 0 {
			r.told.broken.Inc()
		}
		timer.Reset(next)
	}
}

// probeOne asks for the root's servers, which every server can say something about.
func (r *Resolver) probeOne(ctx context.Context, s *server) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	m := new(dns.Msg).SetQuestion(".", dns.TypeNS)
	if _, err := s.exchange(ctx, m); err != nil {
		if ctx.Err() == nil || context.Cause(ctx) == context.DeadlineExceeded {
			r.told.failures.WithLabelValues(s.addr).Inc()
			s.failed(r.now())
		}
		return
	}
	r.log.Info("the name server answers again", "server", s.addr)
	s.answered()
}

// loops are the questions that were sent to find out which servers ask this one.
type loops struct {
	mu   sync.Mutex
	open map[string]*server // by the first label
}

// loopDomain is what such questions are about. Nobody has it.
const loopDomain = "dns-loop-check.clusterctl."

// findLoops sends every server a question that nobody else asks. When it comes back, Looped sees it.
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
			r.loops.open[label] = s
			r.loops.mu.Unlock()
			ctx, cancel := context.WithTimeout(ctx, tryTime)
			defer cancel()
			_, err := s.exchange(ctx, new(dns.Msg).SetQuestion(label+"."+loopDomain, dns.TypeHINFO))
			r.loops.mu.Lock()
			_, unseen := r.loops.open[label]
			delete(r.loops.open, label)
			r.loops.mu.Unlock()
			if unseen && err == nil && s.loops.Swap(false) {
				r.log.Info("the name server does not ask this one any more, and is asked again", "server", s.addr)
			}
		})
	}
	g.Wait()
}

// Looped reports whether a question is one that this server has sent itself. Who sent it back is not asked any more.
func (r *Resolver) Looped(name *wire.Name) bool {
	if name.Labels() != 3 || string(name.Label(2)) != "clusterctl" ||
		name.String() != string(name.Label(0))+"."+loopDomain {
		return false
	}
	r.loops.mu.Lock()
	defer r.loops.mu.Unlock()
	label := strings.ToLower(string(name.Label(0)))
	s := r.loops.open[label]
	if s == nil {
		return false
	}
	delete(r.loops.open, label)
	if !s.loops.Swap(true) {
		r.log.Error("a name server asks this one what it is asked by it: it is left out", "server", s.addr)
	}
	return true
}
