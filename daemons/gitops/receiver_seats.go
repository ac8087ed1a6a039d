package gitops

import (
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Bounds of the requests of receivers that are served at the same time.
const (
	maxHooks     = 32               // requests
	hookDeadline = 10 * time.Second // of reading a request's body
	hookGrace    = 2 * time.Second  // in which a body need not have the minimum rate
	minHookRate  = 16 << 10         // bytes of a body per second after that
	hookPatience = time.Second      // after which a request gives way to another one of the same client
)

// seats are the requests that a receiver serves. If all are taken, a client with many requests gives one up for a
// client with fewer. A request that arrives slowly gives way to a new one, also if a proxy sends all of them.
type seats struct {
	mu    sync.Mutex
	taken []*seat // in the order of time
}

// seat is one request that is served.
type seat struct {
	client netip.Addr // or its network
	since  time.Time
	isRead bool   // its body has arrived; guarded by seats.mu
	cut    func() // ends the reading of the body
}

// clientOf returns the key of a client by its address and port: its IPv4 address, or its IPv6 network, since a host
// usually has a whole network of 64 bits.
func clientOf(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	address := at.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address
	}
	network, err := address.Prefix(64)
	if err != nil {
		return address
	}
	return network.Addr()
}

// take returns a seat for a request, or nil if the client has to try again later.
func (s *seats) take(client netip.Addr, now time.Time, cut func()) *seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.taken) >= maxHooks {
		at := s.victim(client, now)
		if at < 0 {
			return nil
		}
		s.taken[at].cut()
		s.taken = slices.Delete(s.taken, at, at+1)
	}
	one := &seat{client: client, since: now, cut: cut}
	s.taken = append(s.taken, one)
	return one
}

// victim returns the index of the seat that gives way to a request of a client, or -1: the oldest one of the client
// that has most, or the oldest one of all clients that have as many as this one. The caller holds mu.
func (s *seats) victim(client netip.Addr, now time.Time) int {
	counts := map[netip.Addr]int{}
	most := 0
	for _, one := range s.taken {
		counts[one.client]++
		most = max(most, counts[one.client])
	}
	isRich := most > counts[client]+1
	return slices.IndexFunc(s.taken, func(one *seat) bool {
		if isRich {
			return !one.isRead && counts[one.client] == most
		}
		return !one.isRead && counts[one.client] >= counts[client] && now.Sub(one.since) >= hookPatience
	})
}

// arrived records that the body of a request has been read, so that it no longer gives way.
func (s *seats) arrived(one *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.isRead = true
}

// leave ends what take began.
func (s *seats) leave(one *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = slices.DeleteFunc(s.taken, func(other *seat) bool { return other == one })
}

// readDeadline is the deadline of reading a body. Once it was cut, it stays in the past.
type readDeadline struct {
	set func(deadline time.Time)

	mu    sync.Mutex
	isCut bool
}

// extend sets the deadline.
func (d *readDeadline) extend(deadline time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isCut {
		d.set(deadline)
	}
}

// cut ends the reading.
func (d *readDeadline) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isCut = true
	d.set(time.Now())
}

// pacedBody is a body with a minimum rate.
type pacedBody struct {
	io.Reader
	began    time.Time
	received int64
	until    func(deadline time.Time) // sets the deadline of reading
}

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	allowed := hookGrace + time.Duration(b.received)*time.Second/minHookRate
	b.until(b.began.Add(min(allowed, hookDeadline)))
	n, err := b.Reader.Read(p)
	b.received += int64(n)
	return n, err
}
