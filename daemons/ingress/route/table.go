// Package route decides which Ingress rule a request is for, which endpoints answer for a service, and which
// certificate a connection is shown. It is plain values: a Builder is told of objects as they change and makes
// immutable tables. Watching the API and passing requests on is for others.
//
// A rule has more than an Ingress can say (matches on headers, weights, filters): package gateway makes rules of
// HTTPRoutes.
package route

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"strings"
	"time"
)

// Table says where requests go. It never changes; a Builder makes the next one.
type Table struct {
	exact    names[host] // by name, lower case
	wildcard names[host] // by what follows the first label: "*.a.example" is at "a.example"
	every    *host       // rules without a host
	certs    certificates

	listeners *listeners // of Gateways, which come before all that; nil: none
}

// host are the rules of one host name.
type host struct {
	exact  paths
	prefix paths   // by path without a slash at its end; "" is every path
	rest   []*Rule // default backends, for what no path matches
}

// Request is what a rule may match beyond host and path.
type Request interface {
	Method() string
	Header(name string) (value string, ok bool)
	Query(name string) (value string, ok bool)
}

// Rule is one path of one host.
type Rule struct {
	Source   Source
	Path     string // as declared
	Match    Match
	Filters  Filters
	Backends []Weighted // none: nothing can answer
	Missing  int        // status where the backend that is chosen is not there; zero: 503
	Policy   *Policy
	// ToHTTPS sends plain requests to the same place over TLS.
	ToHTTPS bool
	// Counter is what the engine counts of this rule's source.
	Counter any
}

// Source is the object a rule is from, and the service that it names. It is the label of logs and metrics.
type Source struct{ Namespace, Name, Service string }

// Weighted is a backend and its share of the requests.
type Weighted struct {
	Backend           *Backend // nil: what was asked for cannot be had, and its share of the requests fails
	Weight            int
	Request, Response *Headers // in the place of the rule's; nil: those
}

// Policy is how requests of a rule are passed on.
type Policy struct {
	Connect, Read, Send time.Duration // to connect; between two reads and two writes
	Total               time.Duration // from a request's head to the end of its answer; 0: any
	MaxBody             int64         // bytes of a request's body; 0: any
	MinRate             int64         // bytes of a request's body that come in a second; 0: any
	Protocol            Protocol      // of the backend
	RedirectTLS         bool          // plain requests are redirected where the Ingress has TLS for the host
	ForceTLS            bool          // and everywhere
	Rewrite             string        // path that takes the place of the request's; empty: none
}

// Find returns the rule for a request, or nil. host is the name without a port, path what comes before a query; both
// are as the client sent them, but for letters of the host, which are lower case.
//
// The most specific host with a matching path counts, then the longest path, and an exact one before a prefix of the
// same length. Default backends answer for what no path of any host matches.
func (t *Table) Find(name, path []byte, r Request) *Rule {
	if t.listeners != nil {
		if l := t.listeners.find(name); l != nil {
			if rule := l.find(name, path, r); rule != nil {
				return rule
			}
		}
	}
	var hosts [3]*host
	hosts[0] = t.exact.ofBytes(name)
	if dot := bytes.IndexByte(name, '.'); dot > 0 {
		hosts[1] = t.wildcard.ofBytes(name[dot+1:])
	}
	hosts[2] = t.every
	for _, h := range hosts {
		if h != nil {
			if rule := h.find(path, r); rule != nil {
				return rule
			}
		}
	}
	for _, h := range hosts {
		if h != nil {
			if rule := first(h.rest, r); rule != nil {
				return rule
			}
		}
	}
	return nil
}

func (h *host) find(path []byte, r Request) *Rule {
	if rule := first(h.exact.of(path), r); rule != nil {
		return rule
	}
	if h.prefix.empty() {
		return nil
	}
	for n := len(path); n > 0; {
		if path[n-1] != '/' {
			if rule := first(h.prefix.of(path[:n]), r); rule != nil {
				return rule
			}
		}
		n = max(bytes.LastIndexByte(path[:n], '/'), 0)
	}
	return first(h.prefix.of(nil), r)
}

// host is what the table has of a host by its name; nil for nothing.
func (t *Table) host(name string) *host {
	if name == "" {
		return t.every
	}
	if parent, ok := strings.CutPrefix(name, "*."); ok {
		return t.wildcard.of(parent)
	}
	return t.exact.of(name)
}

func first(rules []*Rule, r Request) *Rule {
	for _, rule := range rules {
		if rule.Match.accepts(r) {
			return rule
		}
	}
	return nil
}

// Certificate returns what a client is shown that asks for a server by name; nil when there is none for it.
func (t *Table) Certificate(server string) *tls.Certificate {
	server = strings.ToLower(strings.TrimSuffix(server, "."))
	if t.listeners == nil {
		return cmp.Or(t.certs.named(server), t.certs.rest)
	}
	l := t.listeners.find([]byte(server))
	if l == nil || l.Hostname == "" {
		if cert := t.certs.named(server); cert != nil {
			return cert
		}
	}
	if l != nil {
		return l.certificate(server)
	}
	return t.certs.rest
}
