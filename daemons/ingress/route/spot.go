package route

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// spot is where one Ingress rule applies: an exact path of a host, a path prefix, or the host's default backend.
type spot struct {
	host string
	kind spotKind
	path string // a prefix has no final slash
}

type spotKind uint8

const (
	exactly spotKind = iota
	below
	otherwise
)

func spotOf(host string, p path) spot {
	switch {
	case p.rest:
		return spot{host, otherwise, ""}
	case p.kind == networkingv1.PathTypeExact:
		return spot{host, exactly, declaredPath(p.path)}
	}
	return spot{host, below, strings.TrimRight(declaredPath(p.path), "/")}
}

// claim is an Ingress that wants a spot.
type claim struct {
	of   *ingress
	path path
}

// claim replaces the claims of old by those of now. Either may be nil.
func (b *Builder) claim(old, now *ingress) {
	if old != nil {
		for host, list := range old.hosts {
			for _, p := range list {
				s := spotOf(host, p)
				b.changed[s] = true
				drop(b.bySpot, s, old.key)
			}
		}
	}
	if now == nil {
		return
	}
	for host, list := range now.hosts {
		for _, p := range list {
			s := spotOf(host, p)
			b.changed[s] = true
			if _, there := b.bySpot[s][now.key]; !there { // of two equal paths in an Ingress, the first applies
				put(b.bySpot, s, now.key, claim{now, p})
			}
		}
	}
}

// oldest returns the claim that gets a spot, which is that of the oldest Ingress. It returns false if there is none.
func (b *Builder) oldest(s spot) (found claim, ok bool) {
	for _, c := range b.bySpot[s] {
		if !ok || older(c.of, found.of) < 0 {
			found, ok = c, true
		}
	}
	return found, ok
}

// hosts returns the rebuilt hosts that have changed, by name. A nil value means that no Ingress has a rule for the
// host.
func (b *Builder) hosts() map[string]*host {
	changes := map[string]*[below + 1]map[string][]*Rule{}
	all := map[string]*host{}
	for s := range b.changed {
		h := all[s.host]
		if h == nil {
			h = &host{}
			if was := b.table.host(s.host); was != nil {
				*h = *was
			}
			all[s.host], changes[s.host] = h, &[below + 1]map[string][]*Rule{{}, {}}
		}
		var rules []*Rule
		if c, ok := b.oldest(s); ok {
			rules = []*Rule{b.rule(c.of, c.path, s.host)}
		}
		if s.kind == otherwise {
			h.rest = rules
		} else {
			changes[s.host][s.kind][s.path] = rules
		}
	}
	for name, h := range all {
		h.exact, h.prefix = h.exact.with(changes[name][exactly]), h.prefix.with(changes[name][below])
		if h.exact.empty() && h.prefix.empty() && h.rest == nil {
			all[name] = nil
		}
	}
	return all
}
