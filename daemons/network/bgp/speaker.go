// Package bgp tells routers which addresses this machine takes packets for. It speaks to the peers that it is given,
// tells them its routes, and takes none of theirs. Which addresses those are, daemons/network/announce says.
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

// Peer is a router, and how it is spoken to.
type Peer struct {
	Address  netip.AddrPort
	ASN      uint32        // the router's
	LocalASN uint32        // this machine's; the same as the router's within one autonomous system
	HoldTime time.Duration // after so much silence either side takes the other for dead; at least 3 s
}

// Machine is this machine as routers know it.
type Machine struct {
	Identifier netip.Addr // among BGP speakers, an IPv4 address
	// NextHops are addresses of the machine, at most one of each family, where routers send packets to. What has
	// another family is not told.
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

// Speaker keeps one session with each peer.
type Speaker struct {
	log *slog.Logger
	up  *prometheus.GaugeVec

	mu       sync.Mutex
	sessions map[Peer]*running
}

// New returns a Speaker whose Metrics are to be registered.
func New(log *slog.Logger) *Speaker {
	return &Speaker{log: log, sessions: map[Peer]*running{}, up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "network_bgp_session_up", Help: "Whether the session with a router is established.",
	}, []string{"peer"})}
}

// Metrics are the sessions' states.
func (s *Speaker) Metrics() prometheus.Collector { return s.up }

// running is a session that has been started.
type running struct {
	stop    context.CancelFunc
	done    chan struct{}
	tell    chan struct{} // has room for one
	machine Machine       // as it was when the session was started

	mu    sync.Mutex
	wants []netip.Addr
	leave bool // the peer is not wanted any more: its routes are taken back
}

// Set says which addresses each peer is to be told. Peers that are not named are left, and all when the machine has
// become another, with all that they were told taken back. Sessions live until ctx ends; they end without taking
// anything back then, so that a daemon that starts again is not missed.
func (s *Speaker) Set(ctx context.Context, m Machine, wants map[Peer][]netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for peer, r := range s.sessions {
		if _, wanted := wants[peer]; !wanted || r.machine.Identifier != m.Identifier ||
			!slices.Equal(r.machine.NextHops, m.NextHops) {
			r.mu.Lock()
			r.leave = true
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
			r = &running{machine: m, done: make(chan struct{}), tell: make(chan struct{}, 1)}
			s.sessions[peer] = r
			s.start(ctx, peer, r)
		}
		r.want(wants[peer])
	}
}

func (r *running) want(list []netip.Addr) {
	list = slices.Clone(list)
	slices.SortFunc(list, netip.Addr.Compare)
	list = slices.Compact(list)
	r.mu.Lock()
	same := slices.Equal(r.wants, list)
	r.wants = list
	r.mu.Unlock()
	if !same {
		select {
		case r.tell <- struct{}{}:
		default:
		}
	}
}

func (r *running) wanted() []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wants
}

func (r *running) leaves() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leave
}

// Times between attempts to reach a peer.
const (
	firstRetry = time.Second
	lastRetry  = 15 * time.Second
)

func (s *Speaker) start(ctx context.Context, peer Peer, r *running) {
	ctx, r.stop = context.WithCancel(ctx)
	up := s.up.WithLabelValues(peer.Address.String())
	log := s.log.With("peer", peer.Address, "asn", peer.ASN)
	go func() {
		defer close(r.done)
		retry := firstRetry
		for {
			c := &session{peer: peer, running: r, log: log}
			err := c.run(ctx, func() {
				up.Set(1)
				retry = firstRetry
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
			retry = min(2*retry, lastRetry)
		}
	}()
}

// Wait waits until all sessions have ended, after the context of Set.
func (s *Speaker) Wait() {
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	for _, r := range list {
		<-r.done
	}
}
