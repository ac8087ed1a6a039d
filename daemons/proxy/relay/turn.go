// Package relay forwards TCP connections and UDP packets between clients and endpoints in the proxy's process. It
// selects endpoints in turn. Packet rules direct clients to it and restrict access.
package relay

import (
	"net/netip"
	"sync"
	"time"

	"clusterctl/daemons/proxy/rules"
)

// maxClients limits the remembered clients of a service port. Beyond it, an arbitrary client is dropped.
const maxClients = 16384

// Turns selects endpoints in turn. With session affinity, a client keeps its endpoint.
type Turns struct {
	Now func() time.Time // nil means time.Now

	mu    sync.Mutex
	byKey map[string]*turnState
}

type turnState struct {
	last    netip.AddrPort
	clients map[netip.Addr]clientEndpoint
}

type clientEndpoint struct {
	to   netip.AddrPort
	last time.Time
}

func (t *Turns) now() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return time.Now()
}

// Next returns the endpoint for a client's next connection, except those in failed. It returns false if there is none.
func (t *Turns) Next(w rules.Candidates, client netip.Addr, failed map[netip.AddrPort]bool) (netip.AddrPort, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byKey == nil {
		t.byKey = map[string]*turnState{}
	}
	s := t.byKey[w.Key]
	if s == nil {
		s = &turnState{}
		t.byKey[w.Key] = s
	}
	kept := time.Duration(w.Affinity) * time.Second
	now := t.now()
	if v, found := s.clients[client]; found && kept > 0 && now.Sub(v.last) < kept && !failed[v.to] {
		for _, e := range w.Endpoints {
			if e.To == v.to {
				s.clients[client] = clientEndpoint{v.to, now}
				return v.to, true
			}
		}
	}
	to, ok := s.nextAfter(w.Endpoints, failed)
	if ok && kept > 0 {
		s.setClient(client, clientEndpoint{to, now})
	}
	return to, ok
}

// nextAfter returns the endpoint that follows the last one in the order of addresses, wrapping around.
func (s *turnState) nextAfter(eps []rules.Endpoint, failed map[netip.AddrPort]bool) (netip.AddrPort, bool) {
	var first, next netip.AddrPort
	for _, e := range eps {
		if failed[e.To] {
			continue
		}
		if !first.IsValid() {
			first = e.To
		}
		if e.To.Compare(s.last) > 0 {
			next = e.To
			break
		}
	}
	if !next.IsValid() {
		next = first
	}
	if next.IsValid() {
		s.last = next
	}
	return next, next.IsValid()
}

func (s *turnState) setClient(client netip.Addr, v clientEndpoint) {
	if s.clients == nil {
		s.clients = map[netip.Addr]clientEndpoint{}
	}
	if _, ok := s.clients[client]; !ok && len(s.clients) >= maxClients {
		for c := range s.clients {
			delete(s.clients, c)
			break
		}
	}
	s.clients[client] = v
}

// Remove drops the state of service ports that were removed.
func (t *Turns) Remove(keys ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		delete(t.byKey, key)
		delete(t.byKey, key+" here")
	}
}
