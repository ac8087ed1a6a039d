package route

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Options are what a Builder is made with.
type Options struct {
	Policy  Policy                   // where annotations say nothing else
	Targets func(BackendKey) Targets // called once for each backend that comes into use
	Counter func(Source) any         // called whenever a rule is made; the same source gets the same
}

// Builder keeps what tables are made of. It is used by one goroutine at a time.
//
// Endpoints that change go to their backend's Targets at once, and no table is made. An Ingress that changes costs its hosts.
type Builder struct {
	Backends  *Backends // that rules name; others may use them as well
	options   Options
	classes   map[string]*networkingv1.IngressClass
	objects   map[Key]*networkingv1.Ingress // all, also those of other classes
	ingresses map[Key]*ingress              // ours
	byHost    map[string]map[Key]*ingress
	secrets   map[Key]secret
	ofSecret  map[Key]map[Key]*ingress // by secret, by Ingress

	changed   map[string]bool // hosts whose rules are to be made again
	changedTo bool            // certificates are to be made again
	table     *Table
}

// NewBuilder returns a Builder that knows nothing.
func NewBuilder(o Options) *Builder {
	return &Builder{
		Backends: NewBackends(o.Targets), options: o, classes: map[string]*networkingv1.IngressClass{}, objects: map[Key]*networkingv1.Ingress{},
		ingresses: map[Key]*ingress{}, byHost: map[string]map[Key]*ingress{}, secrets: map[Key]secret{},
		ofSecret: map[Key]map[Key]*ingress{}, changed: map[string]bool{}, table: &Table{},
	}
}

// SetClass tells of an IngressClass; nil when it is gone.
func (b *Builder) SetClass(name string, class *networkingv1.IngressClass) {
	if class == nil {
		delete(b.classes, name)
	} else {
		b.classes[name] = class
	}
	for key, in := range b.objects {
		if b.ours(in) != (b.ingresses[key] != nil) {
			b.SetIngress(key, in)
		}
	}
}

// SetIngress tells of an Ingress; nil when it is gone.
func (b *Builder) SetIngress(key Key, object *networkingv1.Ingress) {
	if object == nil {
		delete(b.objects, key)
	} else {
		b.objects[key] = object
	}
	old := b.ingresses[key]
	var now *ingress
	if object != nil && b.ours(object) {
		now = b.read(object) // before the old one lets its backends go: those that stay are kept
		b.ingresses[key] = now
		for name := range now.hosts {
			put(b.byHost, name, key, now)
			b.changed[name] = true
		}
		for _, t := range now.tls {
			put(b.ofSecret, t.secret, key, now)
			b.changedTo = true
		}
	} else {
		delete(b.ingresses, key)
	}
	if old == nil {
		return
	}
	for name := range old.hosts {
		b.changed[name] = true
		if !now.has(name) {
			drop(b.byHost, name, key)
		}
	}
	for _, t := range old.tls {
		b.changedTo = true
		if now == nil || !slices.ContainsFunc(now.tls, func(n tlsEntry) bool { return n.secret == t.secret }) {
			drop(b.ofSecret, t.secret, key)
		}
	}
	for _, backend := range old.backends {
		b.Backends.Release(backend)
	}
}

// SetService tells of a service; nil when it is gone.
func (b *Builder) SetService(key Key, s *corev1.Service) { b.Backends.SetService(key, s) }

// SetSlices tells of all slices of a service.
func (b *Builder) SetSlices(service Key, all []*discoveryv1.EndpointSlice) {
	b.Backends.SetSlices(service, all)
}

// SetSecret tells of a secret; nil when it is gone.
func (b *Builder) SetSecret(key Key, s *corev1.Secret) {
	if s == nil {
		delete(b.secrets, key)
	} else {
		b.secrets[key] = readSecret(s)
	}
	if len(b.ofSecret[key]) > 0 {
		b.changedTo = true
	}
}

// Ours returns the Ingresses that are for this proxy.
func (b *Builder) Ours() []Key { return slices.Collect(maps.Keys(b.ingresses)) }

// Problems are what an Ingress asks for and does not get, as things are now.
func (b *Builder) Problems(key Key) []Problem {
	in := b.ingresses[key]
	if in == nil {
		return nil
	}
	problems := slices.Clone(in.problems)
	for _, t := range in.tls {
		if t.secret.Name == "" {
			continue
		}
		switch s, ok := b.secrets[t.secret]; {
		case !ok:
			problems = append(problems, Problem{"NoCertificate", fmt.Sprintf("there is no secret %s of type %s", t.secret.Name, corev1.SecretTypeTLS)})
		case s.err != nil:
			problems = append(problems, Problem{"NoCertificate", fmt.Sprintf("secret %s %v", t.secret.Name, s.err)})
		}
	}
	for _, backend := range in.backends {
		if s := b.Backends.Service(backend.Key.Service); s != nil && s.Spec.Type == corev1.ServiceTypeExternalName {
			problems = append(problems, Problem{"UnsupportedBackend", fmt.Sprintf("service %s is of type ExternalName and has no endpoints", s.Name)})
		}
	}
	return problems
}

// Has reports whether there is a rule of a source.
func (b *Builder) Has(s Source) bool {
	in := b.ingresses[Key{s.Namespace, s.Name}]
	return in != nil && slices.ContainsFunc(in.backends, func(u *Backend) bool { return u.Key.Service.Name == s.Service }) || in != nil && s.Service == ""
}

// Certificate returns what a secret has, or why it has none that can be used.
func (b *Builder) Certificate(key Key) (*tls.Certificate, error) {
	s, ok := b.secrets[key]
	if !ok {
		return nil, fmt.Errorf("there is no secret %s of type %s", key, corev1.SecretTypeTLS)
	}
	if s.err != nil {
		return nil, fmt.Errorf("secret %s %w", key, s.err)
	}
	return s.cert, nil
}

// Table returns the table of what the Builder was told, the same one where nothing changed.
func (b *Builder) Table() *Table {
	if len(b.changed) == 0 && !b.changedTo {
		return b.table
	}
	next := *b.table
	if len(b.changed) > 0 {
		next.exact, next.wildcard = copied(next.exact), copied(next.wildcard)
	}
	for name := range b.changed {
		h := b.host(name)
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
	if b.changedTo {
		next.certs = b.certificates()
	}
	clear(b.changed)
	b.changedTo = false
	b.table = &next
	return b.table
}

// host makes the rules of one host; nil when no Ingress has any.
func (b *Builder) host(name string) *host {
	all := slices.SortedFunc(maps.Values(b.byHost[name]), older)
	if len(all) == 0 {
		return nil
	}
	h := &host{exact: map[string][]*Rule{}, prefix: map[string][]*Rule{}}
	for _, in := range all {
		for _, p := range in.hosts[name] {
			rule := b.rule(in, p, name)
			switch {
			case p.rest:
				h.rest = add(h.rest, rule)
			case p.kind == networkingv1.PathTypeExact:
				h.exact[p.path] = add(h.exact[p.path], rule)
			default:
				at := strings.TrimRight(p.path, "/")
				h.prefix[at] = add(h.prefix[at], rule)
			}
		}
	}
	return h
}

// add puts a rule in its place among those of the same path: after those that ask for more, and those of older objects.
func add(rules []*Rule, rule *Rule) []*Rule {
	at := slices.IndexFunc(rules, func(r *Rule) bool { return r.Match.weight() < rule.Match.weight() })
	if at < 0 {
		at = len(rules)
	}
	return slices.Insert(rules, at, rule)
}

func (b *Builder) rule(in *ingress, p path, host string) *Rule {
	rule := &Rule{
		Source: Source{Namespace: in.key.Namespace, Name: in.key.Name}, Path: p.path, Policy: in.policy,
		ToHTTPS: in.policy.ForceTLS || in.policy.RedirectTLS && in.hasTLS(host),
	}
	if p.backend != nil {
		rule.Source.Service = p.backend.Key.Service.Name
		rule.Backends = []Weighted{{Backend: p.backend, Weight: 1}}
	}
	if in.policy.Rewrite != "" {
		rule.Filters.Rewrite = &Rewrite{Path: in.policy.Rewrite}
	}
	if b.options.Counter != nil {
		rule.Counter = b.options.Counter(rule.Source)
	}
	return rule
}

func (b *Builder) certificates() certificates {
	c := certificates{exact: map[string]*tls.Certificate{}, wildcard: map[string]*tls.Certificate{}}
	var all []*ingress
	for _, in := range b.ingresses {
		if len(in.tls) > 0 {
			all = append(all, in)
		}
	}
	slices.SortFunc(all, older)
	for _, in := range all {
		for _, entry := range in.tls {
			cert := b.secrets[entry.secret].cert
			if cert == nil {
				continue
			}
			names := in.names(entry, cert)
			for _, name := range names {
				c.add(name, cert)
			}
			if len(names) == 0 && c.rest == nil {
				c.rest = cert
			}
		}
	}
	return c
}

func put[K, L comparable, V any](in map[K]map[L]V, k K, l L, v V) {
	if in[k] == nil {
		in[k] = map[L]V{}
	}
	in[k][l] = v
}

func drop[K, L comparable, V any](in map[K]map[L]V, k K, l L) {
	delete(in[k], l)
	if len(in[k]) == 0 {
		delete(in, k)
	}
}

func copied[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}
