package route

import (
	"fmt"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
)

// ingress is a parsed Ingress.
type ingress struct {
	key      Key
	created  time.Time
	policy   *Policy
	hosts    map[string][]path // by host in lower case; "" for all hosts
	tls      []tlsEntry
	backends []*Backend // one use for each reference to a backend
	problems []Problem
}

type path struct {
	kind      networkingv1.PathType
	path      string
	isDefault bool // the default backend, for requests that match no path
	backend   *Backend
}

type tlsEntry struct {
	hosts  []string
	secret Key // empty for the proxy's own certificate
}

// compareAge orders Ingresses. If two want the same, the older one gets it.
func compareAge(a, b *ingress) int {
	if c := a.created.Compare(b.created); c != 0 {
		return c
	}
	if c := strings.Compare(a.key.Namespace, b.key.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.key.Name, b.key.Name)
}

// parseIngress parses an Ingress. It adds uses of the backends.
func (b *Builder) parseIngress(in *networkingv1.Ingress) *ingress {
	out := &ingress{key: Key{in.Namespace, in.Name}, created: in.CreationTimestamp.Time, hosts: map[string][]path{}}
	policy, problems := policyOf(in.Annotations, b.options.Policy)
	out.policy, out.problems = &policy, problems
	for i := range in.Spec.Rules {
		rule := &in.Spec.Rules[i]
		name := strings.ToLower(rule.Host)
		if rule.HTTP == nil { // the default backend serves the whole host
			if _, ok := out.hosts[name]; !ok {
				out.hosts[name] = nil
			}
			continue
		}
		for j := range rule.HTTP.Paths {
			p := &rule.HTTP.Paths[j]
			out.hosts[name] = append(out.hosts[name], path{
				kind: ptr.Deref(p.PathType,
					networkingv1.PathTypeImplementationSpecific), path: p.Path, backend: b.useBackend(out, &p.Backend),
			})
		}
	}
	if d := in.Spec.DefaultBackend; d != nil {
		rest := path{isDefault: true, backend: b.useBackend(out, d)}
		for name := range out.hosts {
			out.hosts[name] = append(out.hosts[name], rest)
		}
		if len(out.hosts) == 0 {
			out.hosts[""] = []path{rest}
		}
	}
	for _, t := range in.Spec.TLS {
		entry := tlsEntry{hosts: t.Hosts}
		if t.SecretName != "" {
			entry.secret = Key{in.Namespace, t.SecretName}
		}
		out.tls = append(out.tls, entry)
	}
	return out
}

// useBackend returns the backend of a reference. For anything other than a service, it returns nil and records a
// problem.
func (b *Builder) useBackend(in *ingress, named *networkingv1.IngressBackend) *Backend {
	if named.Service == nil {
		kind := ""
		if named.Resource != nil {
			kind = named.Resource.Kind + " " + named.Resource.Name
		}
		in.problems = append(in.problems,
			Problem{"UnsupportedBackend", fmt.Sprintf("only services can be backends, not %s", kind)})
		return nil
	}
	backend := b.Backends.Use(
		BackendKey{Key{in.key.Namespace, named.Service.Name}, portOf(named.Service.Port), in.policy.Protocol},
	)
	in.backends = append(in.backends, backend)
	return backend
}

// hasTLS reports whether the Ingress has TLS for one of its hosts.
func (in *ingress) hasTLS(name string) bool {
	for _, t := range in.tls {
		if len(t.hosts) == 0 {
			return true
		}
		for _, h := range t.hosts {
			h = strings.ToLower(h)
			if h == name {
				return true
			}
			parent, ok := strings.CutPrefix(h, "*.")
			if _, of, exists := strings.Cut(name, "."); ok && exists && of == parent {
				return true
			}
		}
	}
	return false
}
