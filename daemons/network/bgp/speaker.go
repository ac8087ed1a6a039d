// Package bgp announces to routers the addresses for which this machine accepts packets. It has sessions with the
// configured peers, announces its routes, and ignores theirs. Package daemons/network/announce decides on the
// addresses.
package bgp

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Peer is a router with the parameters of its session.
type Peer struct {
	Address  netip.AddrPort
	ASN      uint32        // of the router
	LocalASN uint32        // of this machine; equal to ASN within one autonomous system
	HoldTime time.Duration // silence after which either side ends the session; at least 3 s
}

// Machine is the identity of this machine for BGP.
type Machine struct {
	Identifier netip.Addr // BGP identifier, an IPv4 address
	// NextHops are the machine's addresses to which routers send packets, at most one of each family. Addresses of a
	// family without a next hop are not announced.
	NextHops []netip.Addr
}

func (m Machine) nextHop(v4 bool) (netip.Addr, bool) {
	for _, a := range m.NextHops {
		if a.Is4() == v4 {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// Speaker maintains one session with each peer.
type Speaker struct {
	log *slog.Logger
	up  *prometheus.GaugeVec

	mu       sync.Mutex
	sessions map[Peer]*runningSession
}

// New returns a Speaker. The caller registers its Metrics.
func New(log *slog.Logger) *Speaker {
	return &Speaker{log: log, sessions: map[Peer]*runningSession{}, up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "network_bgp_session_up", Help: "Whether the session with a router is established.",
	}, []string{"peer"})}
}

// Metrics returns the collector of the sessions' states.
func (s *Speaker) Metrics() prometheus.Collector { return s.up }

// runningSession is the state of a started session.
type runningSession struct {
	stop    context.CancelFunc
	done    chan struct{}
	wake    chan struct{} // buffered for one signal
	machine Machine       // at the start of the session

	mu        sync.Mutex
	addresses []netip.Addr
	leaving   bool // the peer is no longer wanted: withdraw its routes
}

// Set sets the addresses to announce to each peer. It ends the sessions with peers that are not in wants, and all
// sessions if the machine's identity has changed, and withdraws their routes. Sessions also end when ctx ends, but then
// without withdrawing routes, so that a restarted daemon causes no interruption.
func (s *Speaker) Set(ctx context.Context, m Machine, wants map[Peer][]netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for peer, r := range s.sessions {
		if _, wanted := wants[peer]; !wanted || r.machine.Identifier != m.Identifier ||
			!slices.Equal(r.machine.NextHops, m.NextHops) {
			r.mu.Lock()
			r.leaving = true
			r.mu.Unlock()
			r.stop()
			delete(s.sessions, peer)
			s.up.DeleteLabelValues(peer.Address.String())
		}
	}
	for _, peer := range slices.SortedFunc(maps.Keys(wants),
		func(a, b Peer) int { return a.Address.Compare(b.Address) }) {
		r := s.sessions[peer]
		if r == nil {
			r = &runningSession{machine: m, done: make(chan struct{}), wake: make(chan struct{}, 1)}
			s.sessions[peer] = r
			s.start(ctx, peer, r)
		}
		r.setAddresses(wants[peer])
	}
}

func (r *runningSession) setAddresses(list []netip.Addr) {
	list = slices.Clone(list)
	slices.SortFunc(list, netip.Addr.Compare)
	list = slices.Compact(list)
	r.mu.Lock()
	same := slices.Equal(r.addresses, list)
	r.addresses = list
	r.mu.Unlock()
	if !same {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

func (r *runningSession) currentAddresses() []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addresses
}

func (r *runningSession) isLeaving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving
}

// minRetry and maxRetry are the shortest and longest time between attempts to connect to a peer.
const (
	minRetry = time.Second
	maxRetry = 15 * time.Second
)

func (s *Speaker) start(ctx context.Context, peer Peer, r *runningSession) {
	ctx, r.stop = context.WithCancel(ctx)
	up := s.up.WithLabelValues(peer.Address.String())
	log := s.log.With("peer", peer.Address, "asn", peer.ASN)
	go func() {
		defer close(r.done)
		retry := minRetry
		for {
			c := &session{peer: peer, running: r, log: log}
			err := c.run(ctx, func() {
				up.Set(1)
				retry = minRetry
				log.Info("a router listens to which addresses this machine has")
			})
			up.Set(0)
			if ctx.Err() != nil {
				return
			}
			log.Warn("no session with a router", "error", err, "again", retry)
			select {
			case <-ctx.Done():
				return
			case <-time.After(retry):
			}
			retry = min(2*retry, maxRetry)
		}
	}()
}

// Wait waits until all sessions have ended, after the context of Set has ended.
func (s *Speaker) Wait() {
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	for _, r := range list {
		<-r.done
	}
}
