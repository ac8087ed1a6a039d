package route

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// position is where one Ingress rule applies: an exact path of a host, a path prefix, or the host's default backend.
type position struct {
	host string
	kind positionKind
	path string // a prefix has no final slash
}

type positionKind uint8

const (
	positionExact positionKind = iota
	positionPrefix
	positionDefault
)

func positionOf(host string, p path) position {
	switch {
	case p.isDefault:
		return position{host, positionDefault, ""}
	case p.kind == networkingv1.PathTypeExact:
		return position{host, positionExact, declaredPath(p.path)}
	}
	return position{host, positionPrefix, strings.TrimRight(declaredPath(p.path), "/")}
}

// positionClaim is an Ingress that wants a spot.
type positionClaim struct {
	ingress *ingress
	path    path
}

// replaceClaims replaces the claims of old by those of now. Either may be nil.
func (b *Builder) replaceClaims(old, now *ingress) {
	if old != nil {
		for host, list := range old.hosts {
			for _, p := range list {
				s := positionOf(host, p)
				b.changedPositions[s] = true
				deleteNested(b.claims, s, old.key)
			}
		}
	}
	if now == nil {
		return
	}
	for host, list := range now.hosts {
		for _, p := range list {
			s := positionOf(host, p)
			b.changedPositions[s] = true
			if _, ok := b.claims[s][now.key]; !ok { // of two equal paths in an Ingress, the first applies
				putNested(b.claims, s, now.key, positionClaim{now, p})
			}
		}
	}
}

// oldestClaim returns the claim that gets a spot, which is that of the oldest Ingress. It returns false if there is
// none.
func (b *Builder) oldestClaim(s position) (found positionClaim, ok bool) {
	for _, c := range b.claims[s] {
		if !ok || compareAge(c.ingress, found.ingress) < 0 {
			found, ok = c, true
		}
	}
	return found, ok
}

// rebuildHosts returns the rebuilt hosts that have changed, by name. A nil value means that no Ingress has a rule for
// the host.
func (b *Builder) rebuildHosts() map[string]*host {
	changes := map[string]*[positionPrefix + 1]map[string][]*Rule{}
	all := map[string]*host{}
	for s := range b.changedPositions {
		h := all[s.host]
		if h == nil {
			h = &host{}
			if before := b.table.host(s.host); before != nil {
				*h = *before
			}
			all[s.host], changes[s.host] = h, &[positionPrefix + 1]map[string][]*Rule{{}, {}}
		}
		var rules []*Rule
		if c, ok := b.oldestClaim(s); ok {
			rules = []*Rule{b.newRule(c.ingress, c.path, s.host)}
		}
		if s.kind == positionDefault {
			h.fallback = rules
		} else {
			changes[s.host][s.kind][s.path] = rules
		}
	}
	for name, h := range all {
		h.exact, h.prefix = h.exact.with(changes[name][positionExact]), h.prefix.with(changes[name][positionPrefix])
		if h.exact.isEmpty() && h.prefix.isEmpty() && h.fallback == nil {
			all[name] = nil
		}
	}
	return all
}
