package route

import (
	"crypto/tls"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// certificates maps server names to certificates. It is immutable.
type certificates struct {
	exact    names[tls.Certificate]
	wildcard names[tls.Certificate] // by the part after the first label
	fallback *tls.Certificate       // of an Ingress that has hosts neither in its TLS entry nor in its rules
}

// byName returns the certificate of a server name in lower case.
func (c *certificates) byName(server string) *tls.Certificate {
	if cert := c.exact.get(server); cert != nil {
		return cert
	}
	if _, parent, ok := strings.Cut(server, "."); ok {
		return c.wildcard.get(parent)
	}
	return nil
}

// updateCertificates returns the updated certificates.
func (b *Builder) updateCertificates(before certificates) certificates {
	exact, wildcard := map[string]*tls.Certificate{}, map[string]*tls.Certificate{}
	for name := range b.changedCerts {
		var cert *tls.Certificate
		var of *ingress // the oldest Ingress with a certificate for the name
		for _, in := range b.certOwners[name] {
			if of == nil || compareAge(in, of) < 0 {
				of = in
			}
		}
		if of != nil {
			cert = b.certsOf[of.key][name]
		}
		if name == "" {
			before.fallback = cert
		} else if parent, ok := strings.CutPrefix(name, "*."); ok {
			wildcard[parent] = cert
		} else {
			exact[name] = cert
		}
	}
	return certificates{before.exact.with(exact), before.wildcard.with(wildcard), before.fallback}
}

// updateOffers updates for which names an Ingress has which certificates. in is nil if the Ingress was deleted.
func (b *Builder) updateOffers(key Key, in *ingress) {
	before, now := b.certsOf[key], map[string]*tls.Certificate{}
	if in != nil {
		for _, entry := range in.tls {
			s := b.secrets[entry.secret]
			if s == nil {
				continue
			}
			cert, err := s.parse()
			if err != nil {
				continue
			}
			names := in.certNames(entry, cert)
			if len(names) == 0 {
				names = []string{""}
			}
			for _, name := range names {
				if name = strings.ToLower(name); now[name] == nil {
					now[name] = cert
				}
			}
		}
	}
	for name := range before {
		if now[name] == nil {
			b.changedCerts[name] = true
			deleteNested(b.certOwners, name, key)
		}
	}
	for name, cert := range now {
		// Selecting costs time for all Ingresses with a certificate for the name. Skip it if only the paths of the
		// Ingress have changed.
		if old := b.certOwners[name][key]; old == nil || before[name] != cert || !old.created.Equal(in.created) {
			b.changedCerts[name] = true
		}
		putNested(b.certOwners, name, key, in)
	}
	if b.certsOf[key] = now; len(now) == 0 {
		delete(b.certsOf, key)
	}
}

// secret is a Secret whose certificate is parsed on first use.
type secret struct {
	object *corev1.Secret // nil after parsing
	cert   *tls.Certificate
	err    error
}

func (s *secret) parse() (*tls.Certificate, error) {
	if s.object == nil {
		return s.cert, s.err
	}
	if s.object.Type != corev1.SecretTypeTLS {
		s.err = fmt.Errorf("is of type %q; it must be of type %s", s.object.Type, corev1.SecretTypeTLS)
	} else if cert, err := tls.X509KeyPair(s.object.Data[corev1.TLSCertKey],
		s.object.Data[corev1.TLSPrivateKeyKey]); err != nil {
		s.err = fmt.Errorf("has no certificate that can be used: %w", err)
	} else {
		s.cert = &cert
	}
	s.object = nil
	return s.cert, s.err
}

// certNames returns the names for which a TLS entry provides its certificate: the entry's hosts or, without any, the
// hosts of the rules for which the certificate is valid. Without either, the certificate serves all names without a
// certificate.
func (in *ingress) certNames(entry tlsEntry, cert *tls.Certificate) []string {
	if len(entry.hosts) > 0 {
		return entry.hosts
	}
	var names []string
	for name := range in.hosts {
		if name == "" {
			continue
		}
		requested := name
		if parent, ok := strings.CutPrefix(name, "*."); ok {
			requested = "x." + parent
		}
		if cert.Leaf.VerifyHostname(requested) == nil {
			names = append(names, name)
		}
	}
	return names
}
