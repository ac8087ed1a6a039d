package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sync/errgroup"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/proxy/relay"
	"clusterctl/daemons/proxy/rules"
)

// userspaceRelays holds the sockets of userspace mode for both families.
type userspaceRelays struct {
	log      *slog.Logger
	servers  []*relay.TCP
	families []*userspaceBackend
}

// serve forwards connections until ctx ends.
func (r *userspaceRelays) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range r.servers {
		g.Go(func() error { return s.Serve(ctx) })
	}
	<-ctx.Done()
	return g.Wait()
}

// close closes the remaining sockets. Call it when services no longer change.
func (r *userspaceRelays) close() {
	for _, c := range r.families {
		for _, s := range c.sockets {
			s.each((*relay.UDP).Close)
		}
	}
}

// userspaceBackend maintains rules that redirect TCP and UDP to the proxy. The kernel forwards other protocols.
type userspaceBackend struct {
	relays *userspaceRelays
	turns  relay.Turns
	tcp    uint16

	mu sync.Mutex // guards the table, which is read for each incoming connection
	nftBackend
	sockets map[string]portSockets // by key of the UDP port
}

// portSockets holds the sockets of one UDP port. outside is nil if inside serves both.
type portSockets struct{ inside, outside *relay.UDP }

func (s portSockets) each(do func(*relay.UDP)) {
	do(s.inside)
	if s.outside != nil {
		do(s.outside)
	}
}

func newUserspaceBackend(f nft.Family, m rules.Machine, r *userspaceRelays) (*userspaceBackend, error) {
	network := "tcp4"
	if f == nft.IPv6 {
		network = "tcp6"
	}
	ln, err := net.ListenTCP(network, nil)
	if err != nil {
		return nil, fmt.Errorf("listen for connections to services: %w", err)
	}
	c := &userspaceBackend{relays: r, tcp: uint16(ln.Addr().(*net.TCPAddr).Port), sockets: map[string]portSockets{}}
	if c.table, err = rules.NewRelayTable(f, m, c.tcp); err != nil {
		ln.Close()
		return nil, err
	}
	resolve := func(client, to netip.AddrPort) (rules.Candidates, bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.table.Lookup(nft.TCP, to, client.Addr(), isLocal)
	}
	r.servers = append(r.servers, &relay.TCP{Listener: ln, Resolve: resolve, Turns: &c.turns, Log: r.log})
	r.families = append(r.families, c)
	return c, nil
}

// SetService opens the sockets for the service's UDP ports before rules redirect to them.
func (c *userspaceBackend) SetService(service string, ports []rules.Port) error {
	now := map[string]bool{}
	for i := range ports {
		p := &ports[i]
		now[p.Key()] = true
		switch p.Proto {
		case nft.TCP:
			p.Relay = rules.Relay{Inside: c.tcp, Outside: c.tcp}
		case nft.UDP:
			if err := c.openSockets(service, p); err != nil {
				return err
			}
		}
	}
	c.mu.Lock()
	before := c.table.Ports(service)
	err := c.nftBackend.SetService(service, ports)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	for i := range before {
		key := before[i].Key()
		if now[key] {
			continue
		}
		c.turns.Remove(key)
		if s, ok := c.sockets[key]; ok {
			delete(c.sockets, key)
			s.each((*relay.UDP).Close)
		}
	}
	for i := range ports {
		if s, ok := c.sockets[ports[i].Key()]; ok {
			s.each(func(u *relay.UDP) { u.CloseOthers(ports[i].FlowTargets()) })
		}
	}
	return nil
}

func (c *userspaceBackend) openSockets(service string, p *rules.Port) error {
	key, network := p.Key(), "udp4"
	if c.table.Family == nft.IPv6 {
		network = "udp6"
	}
	listen := func(inside bool) (*relay.UDP, error) {
		return relay.ListenUDP(network, &c.turns, c.relays.log, func(client netip.Addr) (rules.Candidates, bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for i, p := range c.table.Ports(service) {
				if p.Key() == key {
					return c.table.CandidatesOf(&c.table.Ports(service)[i], inside, client, isLocal), true
				}
			}
			return rules.Candidates{}, false
		})
	}
	s, err := c.sockets[key], error(nil)
	if s.inside == nil {
		if s.inside, err = listen(true); err != nil {
			return err
		}
		c.sockets[key] = s
	}
	// If the traffic policies for cluster and external addresses differ, each gets its own socket.
	if s.outside == nil && (p.InternalLocal || p.ExternalLocal) && (len(p.External) > 0 || p.NodePort != 0) {
		if s.outside, err = listen(false); err != nil {
			return err
		}
		c.sockets[key] = s
	}
	p.Relay = rules.Relay{Inside: s.inside.Port(), Outside: s.inside.Port()}
	if s.outside != nil {
		p.Relay.Outside = s.outside.Port()
	}
	return nil
}

// isLocal reports whether an address belongs to this machine.
func isLocal(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, at := range list {
		if n, ok := at.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == a {
				return true
			}
		}
	}
	return false
}
