package proxy

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"clusterctl/daemons/ingress/route"
)

// pool holds the endpoints of one backend. It implements route.Targets.
type pool struct {
	e         *Engine
	protocol  route.Protocol
	list      atomic.Pointer[[]*endpoint]
	nextIndex atomic.Uint32
	tls       *tls.Config     // for endpoints with TLS
	h2        *http.Transport // for gRPC
}

// Targets returns a pool for the connections to a backend.
func (e *Engine) Targets(key route.BackendKey) route.Targets {
	p := &pool{e: e, protocol: key.Protocol}
	p.list.Store(&[]*endpoint{})
	if key.Protocol == route.HTTPS || key.Protocol == route.GRPCS {
		// Certificates are not verified, as is usual for ingress controllers: pods have self-signed certificates for
		// arbitrary names.
		p.tls = &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(64)}
	}
	if key.Protocol == route.GRPC || key.Protocol == route.GRPCS {
		p.h2 = p.transport()
	}
	return p
}

// Update sets the list of endpoints. Remaining endpoints keep their connections. Removed endpoints complete their
// running requests.
func (p *pool) Update(addresses []netip.AddrPort) {
	before := *p.list.Load()
	next := make([]*endpoint, 0, len(addresses))
	for _, a := range addresses {
		i := slices.IndexFunc(before, func(e *endpoint) bool { return e.addr == a })
		if i >= 0 {
			next = append(next, before[i])
		} else {
			next = append(next, &endpoint{pool: p, addr: a, addrText: a.String()})
		}
	}
	p.list.Store(&next)
	for _, e := range before {
		if !slices.Contains(next, e) {
			e.retire()
		}
	}
}

// Close removes all endpoints.
func (p *pool) Close() {
	p.Update(nil)
	if p.h2 != nil {
		p.h2.CloseIdleConnections()
	}
}

// pick returns the endpoint for a request. It skips endpoints that were already tried, and prefers those that have not
// refused a connection recently.
func (p *pool) pick(tried []*endpoint, now int64) *endpoint {
	list := *p.list.Load()
	if len(list) == 0 {
		return nil
	}
	start := 0
	if len(list) > 1 {
		start = int(p.nextIndex.Add(1) % uint32(len(list)))
	}
	var best, last *endpoint
	for i := range list {
		at := start + i
		if at >= len(list) {
			at -= len(list)
		}
		e := list[at]
		if slices.Contains(tried, e) {
			continue
		}
		if e.ejectedUntil.Load() > now {
			if last == nil {
				last = e
			}
			continue
		}
		if !p.e.cfg.LeastConns {
			return e
		}
		if best == nil || e.active.Load() < best.active.Load() {
			best = e
		}
	}
	if best == nil {
		best = last
	}
	return best
}

// minEject is how long an endpoint is not used after it has refused a connection. The time doubles with each further
// refusal, up to maxEject.
const (
	minEject = 500 * time.Millisecond
	maxEject = 10 * time.Second
)
