// Package route decides which rule applies to a request, which endpoints serve a backend, and which certificate a
// client gets. It works on plain values: a Builder receives changed objects and builds immutable tables. Other packages
// watch the API and forward requests.
//
// Rules have more features than an Ingress can express: matches on headers, weights and filters. Package gateway builds
// such rules from HTTPRoutes.
package route

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"strings"
	"time"
)

// Table decides where requests go. It is immutable; a Builder builds the next one.
type Table struct {
	exact    names[host] // by name in lower case
	wildcard names[host] // by the part after the first label: "*.a.example" is at "a.example"
	anyHost  *host       // rules without a host
	certs    certificates

	listeners *listeners // of Gateways, which take precedence; nil for none
}

// host holds the rules of one host name.
type host struct {
	exact    paths
	prefix   paths   // by path without a final slash; "" for all paths
	fallback []*Rule // default backends, for requests that match no path
}

// Request provides the properties of a request that rules can match besides host and path.
type Request interface {
	Method() string
	Header(name string) (value string, ok bool)
	Query(name string) (value string, ok bool)
}

// Rule is a rule for one path of one host.
type Rule struct {
	Source   Source
	Path     string // as written in the object
	Match    Match
	Filters  Filters
	Backends []Weighted // empty if there is nothing to forward to
	Missing  int        // status if the selected backend does not exist; zero means 503
	Policy   *Policy
	// ToHTTPS redirects plaintext requests to the same URL with HTTPS.
	ToHTTPS bool
	// Counter is the engine's counter of this rule's source.
	Counter any
}

// Source is the object of a rule and the service of its backend. It is the label of logs and metrics.
type Source struct{ Namespace, Name, Service string }

// Weighted is a backend with its share of the requests.
type Weighted struct {
	Backend           *Backend // nil if the backend is invalid; its share of the requests fails
	Weight            int
	Request, Response *Headers // replace the rule's changes; nil keeps those
}

// Policy is how requests of a rule are forwarded.
type Policy struct {
	Connect, Read, Send time.Duration // time limits: to connect, between two reads, between two writes
	Total               time.Duration // time limit from the request head to the end of the response; 0: no limit
	MaxBody             int64         // bytes of a request body; 0: no limit
	MinRate             int64         // minimum rate of a request body in bytes per second; 0: no minimum
	Protocol            Protocol      // of the backend
	RedirectTLS         bool          // redirect plaintext requests if the Ingress has TLS for the host
	ForceTLS            bool          // redirect plaintext requests always
	Rewrite             string        // path that replaces the request's path; empty for none
}

// Find returns the rule for a request, or nil. name is the host in lower case without a port. path has the form of
// PlainPath.
//
// The most specific host with a matching path takes precedence, then an exact path, then the longest prefix. Default
// backends serve requests that match no path of any host.
func (t *Table) Find(name, path []byte, r Request) *Rule {
	if t.listeners != nil {
		if l := t.listeners.find(name); l != nil {
			if rule := l.find(name, path, r); rule != nil {
				return rule
			}
		}
	}
	var hosts [3]*host
	hosts[0] = t.exact.getBytes(name)
	if dot := bytes.IndexByte(name, '.'); dot > 0 {
		hosts[1] = t.wildcard.getBytes(name[dot+1:])
	}
	hosts[2] = t.anyHost
	for _, h := range hosts {
		if h != nil {
			if rule := h.find(path, r); rule != nil {
				return rule
			}
		}
	}
	for _, h := range hosts {
		if h != nil {
			if rule := firstMatch(h.fallback, r); rule != nil {
				return rule
			}
		}
	}
	return nil
}

func (h *host) find(path []byte, r Request) *Rule {
	if rule := firstMatch(h.exact.get(path), r); rule != nil {
		return rule
	}
	if h.prefix.isEmpty() {
		return nil
	}
	for n := len(path); n > 0; {
		if path[n-1] != '/' {
			if rule := firstMatch(h.prefix.get(path[:n]), r); rule != nil {
				return rule
			}
		}
		n = max(bytes.LastIndexByte(path[:n], '/'), 0)
	}
	return firstMatch(h.prefix.get(nil), r)
}

// host returns the rules of a host by name, or nil.
func (t *Table) host(name string) *host {
	if name == "" {
		return t.anyHost
	}
	if parent, ok := strings.CutPrefix(name, "*."); ok {
		return t.wildcard.get(parent)
	}
	return t.exact.get(name)
}

func firstMatch(rules []*Rule, r Request) *Rule {
	for _, rule := range rules {
		if rule.Match.isMetBy(r) {
			return rule
		}
	}
	return nil
}

// Certificate returns the certificate for a server name, or nil if there is none.
func (t *Table) Certificate(server string) *tls.Certificate {
	server = strings.ToLower(strings.TrimSuffix(server, "."))
	if t.listeners == nil {
		return cmp.Or(t.certs.byName(server), t.certs.fallback)
	}
	l := t.listeners.find([]byte(server))
	if l == nil || l.Hostname == "" {
		if cert := t.certs.byName(server); cert != nil {
			return cert
		}
	}
	if l != nil {
		return l.selectCertificate(server)
	}
	return t.certs.fallback
}
