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

// Options configures a Builder.
type Options struct {
	Policy  Policy                   // defaults for settings without an annotation
	Targets func(BackendKey) Targets // called once for each backend that comes into use
	Counter func(Source) any         // called for each new rule; returns the same value for the same source
}

// Builder builds tables from objects. It must be used by one goroutine at a time.
//
// Changed endpoints are passed to their backend's Targets without building a table. A changed Ingress costs only its
// paths, even if other Ingresses share its host. A changed secret costs only its names. Secrets that no Ingress refers
// to are not parsed.
type Builder struct {
	Backends       *Backends // backends of the rules; others may use them as well
	options        Options
	classes        map[string]*networkingv1.IngressClass
	objects        map[Key]*networkingv1.Ingress // all Ingresses, including those of other classes
	ingresses      map[Key]*ingress              // Ingresses of this proxy
	claims         map[position]map[Key]positionClaim
	secrets        map[Key]*secret
	secretUsers    map[Key]map[Key]*ingress // by secret, then by Ingress
	changedSecrets map[Key]struct{}         // secrets whose use has changed since the last call of ChangedSecrets

	certsOf    map[Key]map[string]*tls.Certificate // by Ingress, then by name; "" for names without a certificate
	certOwners map[string]map[Key]*ingress         // Ingresses with a certificate for a name

	changedPositions map[position]bool // spots whose rules must be rebuilt
	changedCerts     map[string]bool   // names whose certificate must be selected again
	table            *Table
}

// NewBuilder returns a Builder without objects.
func NewBuilder(o Options) *Builder {
	return &Builder{
		Backends: NewBackends(
			o.Targets,
		), options: o, classes: map[string]*networkingv1.IngressClass{}, objects: map[Key]*networkingv1.Ingress{},
		ingresses: map[Key]*ingress{}, claims: map[position]map[Key]positionClaim{}, secrets: map[Key]*secret{},
		secretUsers: map[Key]map[Key]*ingress{}, changedSecrets: map[Key]struct{}{},
		certsOf: map[Key]map[string]*tls.Certificate{}, certOwners: map[string]map[Key]*ingress{},
		changedPositions: map[position]bool{}, changedCerts: map[string]bool{}, table: &Table{},
	}
}

// SetClass sets an IngressClass. class is nil if it was deleted.
func (b *Builder) SetClass(name string, class *networkingv1.IngressClass) {
	if class == nil {
		delete(b.classes, name)
	} else {
		b.classes[name] = class
	}
	for key, in := range b.objects {
		if b.isOurs(in) != (b.ingresses[key] != nil) {
			b.SetIngress(key, in)
		}
	}
}

// SetIngress sets an Ingress. object is nil if it was deleted.
func (b *Builder) SetIngress(key Key, object *networkingv1.Ingress) {
	if object == nil {
		delete(b.objects, key)
	} else {
		b.objects[key] = object
	}
	old := b.ingresses[key]
	var now *ingress
	if object != nil && b.isOurs(object) {
		now = b.parseIngress(object) // before the old one releases its backends, so that shared backends are kept
		b.ingresses[key] = now
		for _, t := range now.tls {
			b.changedSecrets[t.secret] = struct{}{}
			putNested(b.secretUsers, t.secret, key, now)
		}
	} else {
		delete(b.ingresses, key)
	}
	b.updateOffers(key, now)
	b.replaceClaims(old, now)
	if old == nil {
		return
	}
	for _, t := range old.tls {
		if now == nil || !slices.ContainsFunc(now.tls, func(n tlsEntry) bool { return n.secret == t.secret }) {
			b.changedSecrets[t.secret] = struct{}{}
			deleteNested(b.secretUsers, t.secret, key)
		}
	}
	for _, backend := range old.backends {
		b.Backends.Release(backend)
	}
}

// SetService sets a service. s is nil if it was deleted.
func (b *Builder) SetService(key Key, s *corev1.Service) { b.Backends.SetService(key, s) }

// SetSlices sets all slices of a service.
func (b *Builder) SetSlices(service Key, all []*discoveryv1.EndpointSlice) {
	b.Backends.SetSlices(service, all)
}

// SetSecret sets a secret. s is nil if it was deleted.
func (b *Builder) SetSecret(key Key, s *corev1.Secret) {
	if s == nil {
		delete(b.secrets, key)
	} else {
		b.secrets[key] = &secret{object: s}
	}
	for of, in := range b.secretUsers[key] {
		b.updateOffers(of, in)
	}
}

// ChangedSecrets returns the secrets whose use for TLS by Ingresses may have changed since the last call.
func (b *Builder) ChangedSecrets() map[Key]struct{} {
	touched := b.changedSecrets
	b.changedSecrets = map[Key]struct{}{}
	delete(touched, Key{}) // the key of the proxy's own certificate
	return touched
}

// IsReferenced reports whether an Ingress uses a secret for TLS.
func (b *Builder) IsReferenced(secret Key) bool { return len(b.secretUsers[secret]) > 0 }

// UsersOf returns the Ingresses that use a secret for TLS.
func (b *Builder) UsersOf(secret Key) []Key { return slices.Collect(maps.Keys(b.secretUsers[secret])) }

// Ingresses returns the Ingresses of this proxy.
func (b *Builder) Ingresses() []Key { return slices.Collect(maps.Keys(b.ingresses)) }

// Problems returns the current problems of an Ingress.
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
		s := b.secrets[t.secret]
		if s == nil {
			problems = append(
				problems,
				Problem{
					"NoCertificate",
					fmt.Sprintf("there is no secret %s of type %s", t.secret.Name, corev1.SecretTypeTLS),
				},
			)
			continue
		}
		if _, err := s.parse(); err != nil {
			problems = append(problems, Problem{"NoCertificate", fmt.Sprintf("secret %s %v", t.secret.Name, err)})
		}
	}
	for _, backend := range in.backends {
		if s := b.Backends.Service(backend.Key.Service); s != nil && s.Spec.Type == corev1.ServiceTypeExternalName {
			problems = append(
				problems,
				Problem{
					"UnsupportedBackend",
					fmt.Sprintf("service %s is of type ExternalName and has no endpoints", s.Name),
				},
			)
		}
	}
	return problems
}

// HasSource reports whether a source has a rule.
func (b *Builder) HasSource(s Source) bool {
	in := b.ingresses[Key{s.Namespace, s.Name}]
	return in != nil &&
		slices.ContainsFunc(in.backends, func(u *Backend) bool { return u.Key.Service.Name == s.Service }) ||
		in != nil && s.Service == ""
}

// Sources returns the sources of an Ingress.
func (b *Builder) Sources(key Key) []Source {
	in := b.ingresses[key]
	if in == nil {
		return nil
	}
	all := []Source{{Namespace: key.Namespace, Name: key.Name}}
	for _, u := range in.backends {
		all = append(all, Source{key.Namespace, key.Name, u.Key.Service.Name})
	}
	return all
}

// Certificate returns the certificate in a secret. The error states why there is none.
func (b *Builder) Certificate(key Key) (*tls.Certificate, error) {
	s := b.secrets[key]
	if s == nil {
		return nil, fmt.Errorf("there is no secret %s of type %s", key, corev1.SecretTypeTLS)
	}
	cert, err := s.parse()
	if err != nil {
		return nil, fmt.Errorf("secret %s %w", key, err)
	}
	return cert, nil
}

// Table returns the table for the current objects. It returns the same table if nothing has changed.
func (b *Builder) Table() *Table {
	if len(b.changedPositions) == 0 && len(b.changedCerts) == 0 {
		return b.table
	}
	next := *b.table
	exact, wildcard := map[string]*host{}, map[string]*host{}
	for name, h := range b.rebuildHosts() {
		if name == "" {
			next.anyHost = h
		} else if parent, ok := strings.CutPrefix(name, "*."); ok {
			wildcard[parent] = h
		} else {
			exact[name] = h
		}
	}
	next.exact, next.wildcard = next.exact.with(exact), next.wildcard.with(wildcard)
	next.certs = b.updateCertificates(next.certs)
	clear(b.changedPositions)
	clear(b.changedCerts)
	b.table = &next
	return b.table
}

func (b *Builder) newRule(in *ingress, p path, host string) *Rule {
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

func putNested[K, L comparable, V any](in map[K]map[L]V, k K, l L, v V) {
	if in[k] == nil {
		in[k] = map[L]V{}
	}
	in[k][l] = v
}

func deleteNested[K, L comparable, V any](in map[K]map[L]V, k K, l L) {
	delete(in[k], l)
	if len(in[k]) == 0 {
		delete(in, k)
	}
}

func copyMap[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}
