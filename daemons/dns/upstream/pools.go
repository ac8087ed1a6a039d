package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"clusterctl/daemons/dns/wire"
)

// pools holds the servers for all names.
type pools struct {
	all    *pool
	zones  []zonePool // most labels first
	byAddr map[string]*server
}

type zonePool struct {
	domain []byte
	labels int
	pool   *pool
}

// newPools returns the servers of the configuration or, without any, of the machine's file. It reuses existing servers.
func newPools(cfg Config, before *pools) (*pools, error) {
	p := &pools{byAddr: map[string]*server{}}
	list := cfg.Servers
	if len(list) == 0 {
		conf, err := dns.ClientConfigFromFile(cfg.ResolvConf)
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && before == nil) {
			return nil, fmt.Errorf("read the machine's name servers: %w", err)
		}
		if conf != nil {
			list = conf.Servers
		}
	}
	pool := func(list []string, own bool) (*pool, error) {
		out := &pool{policy: cfg.Policy}
		for _, text := range list {
			at, err := Address(text)
			if err != nil {
				return nil, err
			}
			if own && cfg.IsSelf != nil && at.Port() == 53 && cfg.IsSelf(at.Addr()) {
				continue
			}
			addr := at.String()
			s := p.byAddr[addr]
			if s == nil && before != nil {
				s = before.byAddr[addr]
			}
			if s == nil {
				s = &server{addr: addr}
			}
			p.byAddr[addr] = s
			if !slices.Contains(out.servers, s) {
				out.servers = append(out.servers, s)
			}
		}
		return out, nil
	}
	var err error
	if p.all, err = pool(list, len(cfg.Servers) == 0); err != nil {
		return nil, err
	}
	for _, text := range slices.Sorted(maps.Keys(cfg.Zones)) {
		domain, err := wire.Pack(text)
		if err != nil {
			return nil, fmt.Errorf("domain %q: %w", text, err)
		}
		var name wire.Name
		if _, err := name.Parse(domain); err != nil {
			return nil, fmt.Errorf("domain %q: %w", text, err)
		}
		to, err := pool(cfg.Zones[text], false)
		if err != nil {
			return nil, err
		}
		p.zones = append(p.zones, zonePool{domain, name.Labels(), to})
	}
	slices.SortStableFunc(p.zones, func(a, b zonePool) int { return b.labels - a.labels })
	return p, nil
}

// poolFor returns the servers for a name: those of the longest matching domain.
func (p *pools) poolFor(name *wire.Name) *pool {
	for _, z := range p.zones {
		if n := name.Labels() - z.labels; n >= 0 && bytes.Equal(name.From(n), z.domain) {
			return z.pool
		}
	}
	return p.all
}

// Address parses a server's address. The default port is 53.
func Address(text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), "53"
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return at, fmt.Errorf("name server %q is not an IP address", text)
	}
	return at, nil
}
