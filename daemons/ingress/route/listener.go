package route

import (
	"bytes"
	"crypto/tls"
	"slices"
	"strings"
)

// Listener holds the rules and certificates of one Gateway listener. It is immutable. Its wildcards match one or more
// labels.
type Listener struct {
	Hostname string             // lower case; empty for all hosts
	Certs    []*tls.Certificate // the first is the default

	exact    map[string]*host // by name in lower case
	wildcard map[string]*host // by the part after the first label
	anyHost  *host
}

// PathRule is a rule at a path. If Exact, it matches only the path, otherwise also all paths below it by segments.
// Among rules at equal paths, earlier ones take precedence.
type PathRule struct {
	Path  string // as written in the route
	Exact bool
	Rule  *Rule
}

// WithHosts returns a listener with replaced rules for some hosts, by name. "" means all hosts, and "*.a.example" those
// below a.example. A host without rules is removed.
func (l *Listener) WithHosts(hosts map[string][]PathRule) *Listener {
	next := *l
	next.exact, next.wildcard = copyMap(l.exact), copyMap(l.wildcard)
	for name, places := range hosts {
		var h *host
		if len(places) > 0 {
			h = newHost(places)
		}
		to, at := next.exact, name
		if parent, ok := strings.CutPrefix(name, "*."); ok {
			to, at = next.wildcard, parent
		}
		switch {
		case name == "":
			next.anyHost = h
		case h == nil:
			delete(to, at)
		default:
			to[at] = h
		}
	}
	return &next
}

func newHost(places []PathRule) *host {
	exact, prefix := map[string][]*Rule{}, map[string][]*Rule{}
	for _, p := range places {
		at := declaredPath(p.Path)
		if p.Exact {
			exact[at] = insertRule(exact[at], p.Rule)
			continue
		}
		at = strings.TrimRight(at, "/")
		prefix[at] = insertRule(prefix[at], p.Rule)
	}
	return &host{exact: paths{small: exact}, prefix: paths{small: prefix}}
}

// insertRule inserts a rule into those of the same path: after those with more conditions, and after those of older
// objects.
func insertRule(rules []*Rule, rule *Rule) []*Rule {
	at := slices.IndexFunc(rules, func(r *Rule) bool { return r.Match.specificity() < rule.Match.specificity() })
	if at < 0 {
		at = len(rules)
	}
	return slices.Insert(rules, at, rule)
}

// find returns the rule of the most specific host that has a rule for the request.
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
	if l.anyHost != nil {
		return l.anyHost.find(path, r)
	}
	return nil
}

func (l *Listener) selectCertificate(server string) *tls.Certificate {
	if len(l.Certs) == 0 {
		return nil
	}
	i := slices.IndexFunc(l.Certs, func(c *tls.Certificate) bool { return c.Leaf.VerifyHostname(server) == nil })
	return l.Certs[max(i, 0)]
}

// listeners holds listeners by hostname. A request only uses the most specific one.
type listeners struct {
	exact, wildcard map[string]*Listener
	anyHost         *Listener
}

// WithListeners returns a table in which listeners take precedence. Requests without a matching rule in them use the
// rules of t. The hostnames must be distinct.
func (t *Table) WithListeners(all []*Listener) *Table {
	next := *t
	next.listeners = &listeners{exact: map[string]*Listener{}, wildcard: map[string]*Listener{}}
	for _, l := range all {
		if parent, ok := strings.CutPrefix(l.Hostname, "*."); ok {
			next.listeners.wildcard[parent] = l
		} else if l.Hostname != "" {
			next.listeners.exact[l.Hostname] = l
		} else {
			next.listeners.anyHost = l
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
	return l.anyHost
}
