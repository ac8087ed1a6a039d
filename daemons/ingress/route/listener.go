package route

import (
	"bytes"
	"crypto/tls"
	"slices"
	"strings"
)

// Listener is the rules and the certificates of one listener of a Gateway. It never changes. Wildcards stand for one
// label and more.
type Listener struct {
	Hostname string             // lower case; empty: every host
	Certs    []*tls.Certificate // the first for names that none is good for

	exact    map[string]*host // by name, lower case
	wildcard map[string]*host // by what follows the first label
	every    *host
}

// Place is a rule at a path: of the path alone when Exact, else of all paths below it by segments. Where places are
// alike, those that come first count.
type Place struct {
	Path  string // as declared
	Exact bool
	Rule  *Rule
}

// With returns a listener with other rules for some hosts, by name; "" is every host, "*.a.example" those below
// a.example. A host without a place is gone.
func (l *Listener) With(hosts map[string][]Place) *Listener {
	next := *l
	next.exact, next.wildcard = copied(l.exact), copied(l.wildcard)
	for name, places := range hosts {
		var h *host
		if len(places) > 0 {
			h = hostOf(places)
		}
		to, at := next.exact, name
		if parent, ok := strings.CutPrefix(name, "*."); ok {
			to, at = next.wildcard, parent
		}
		switch {
		case name == "":
			next.every = h
		case h == nil:
			delete(to, at)
		default:
			to[at] = h
		}
	}
	return &next
}

func hostOf(places []Place) *host {
	exact, prefix := map[string][]*Rule{}, map[string][]*Rule{}
	for _, p := range places {
		at := declaredPath(p.Path)
		if p.Exact {
			exact[at] = add(exact[at], p.Rule)
			continue
		}
		at = strings.TrimRight(at, "/")
		prefix[at] = add(prefix[at], p.Rule)
	}
	return &host{exact: paths{few: exact}, prefix: paths{few: prefix}}
}

// add puts a rule in its place among those of the same path: after those that ask for more, and those of older objects.
func add(rules []*Rule, rule *Rule) []*Rule {
	at := slices.IndexFunc(rules, func(r *Rule) bool { return r.Match.weight() < rule.Match.weight() })
	if at < 0 {
		at = len(rules)
	}
	return slices.Insert(rules, at, rule)
}

// find returns the rule of the most specific host that has one for the request.
func (l *Listener) find(name, path []byte, r Request) *Rule {
	if h := l.exact[string(name)]; h != nil {
		if rule := h.find(path, r); rule != nil {
			return rule
		}
	}
	if len(l.wildcard) > 0 {
		for parent := name; ; {
			dot := bytes.IndexByte(parent, '.')
			if dot < 0 {
				break
			}
			parent = parent[dot+1:]
			if h := l.wildcard[string(parent)]; h != nil {
				if rule := h.find(path, r); rule != nil {
					return rule
				}
			}
		}
	}
	if l.every != nil {
		return l.every.find(path, r)
	}
	return nil
}

func (l *Listener) certificate(server string) *tls.Certificate {
	if len(l.Certs) == 0 {
		return nil
	}
	i := slices.IndexFunc(l.Certs, func(c *tls.Certificate) bool { return c.Leaf.VerifyHostname(server) == nil })
	return l.Certs[max(i, 0)]
}

// listeners are by their hostnames. A request is for the most specific one alone.
type listeners struct {
	exact, wildcard map[string]*Listener
	every           *Listener
}

// WithListeners returns a table in which listeners come before everything else: what they have no rule for is answered
// as by this table. No two have the same hostname.
func (t *Table) WithListeners(all []*Listener) *Table {
	next := *t
	next.listeners = &listeners{exact: map[string]*Listener{}, wildcard: map[string]*Listener{}}
	for _, l := range all {
		if parent, ok := strings.CutPrefix(l.Hostname, "*."); ok {
			next.listeners.wildcard[parent] = l
		} else if l.Hostname != "" {
			next.listeners.exact[l.Hostname] = l
		} else {
			next.listeners.every = l
		}
	}
	return &next
}

func (l *listeners) find(name []byte) *Listener {
	if found := l.exact[string(name)]; found != nil {
		return found
	}
	if len(l.wildcard) > 0 {
		for parent := name; ; {
			dot := bytes.IndexByte(parent, '.')
			if dot < 0 {
				break
			}
			parent = parent[dot+1:]
			if found := l.wildcard[string(parent)]; found != nil {
				return found
			}
		}
	}
	return l.every
}
