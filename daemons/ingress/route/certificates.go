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
	rest     *tls.Certificate       // of an Ingress that has hosts neither in its TLS entry nor in its rules
}

// named returns the certificate of a server name in lower case.
func (c *certificates) named(server string) *tls.Certificate {
	if cert := c.exact.of(server); cert != nil {
		return cert
	}
	if _, parent, ok := strings.Cut(server, "."); ok {
		return c.wildcard.of(parent)
	}
	return nil
}

// certificates returns the updated certificates.
func (b *Builder) certificates(before certificates) certificates {
	exact, wildcard := map[string]*tls.Certificate{}, map[string]*tls.Certificate{}
	for name := range b.changedCerts {
		var cert *tls.Certificate
		var of *ingress // the oldest Ingress with a certificate for the name
		for _, in := range b.offering[name] {
			if of == nil || older(in, of) < 0 {
				of = in
			}
		}
		if of != nil {
			cert = b.offered[of.key][name]
		}
		if name == "" {
			before.rest = cert
		} else if parent, ok := strings.CutPrefix(name, "*."); ok {
			wildcard[parent] = cert
		} else {
			exact[name] = cert
		}
	}
	return certificates{before.exact.with(exact), before.wildcard.with(wildcard), before.rest}
}

// offer updates for which names an Ingress has which certificates. in is nil if the Ingress was deleted.
func (b *Builder) offer(key Key, in *ingress) {
	before, now := b.offered[key], map[string]*tls.Certificate{}
	if in != nil {
		for _, entry := range in.tls {
			s := b.secrets[entry.secret]
			if s == nil {
				continue
			}
			cert, err := s.read()
			if err != nil {
				continue
			}
			names := in.names(entry, cert)
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
			drop(b.offering, name, key)
		}
	}
	for name, cert := range now {
		// Selecting costs time for all Ingresses with a certificate for the name. Skip it if only the paths of the
		// Ingress have changed.
		if was := b.offering[name][key]; was == nil || before[name] != cert || !was.created.Equal(in.created) {
			b.changedCerts[name] = true
		}
		put(b.offering, name, key, in)
	}
	if b.offered[key] = now; len(now) == 0 {
		delete(b.offered, key)
	}
}

// secret is a Secret whose certificate is parsed on first use.
type secret struct {
	object *corev1.Secret // nil after parsing
	cert   *tls.Certificate
	err    error
}

func (s *secret) read() (*tls.Certificate, error) {
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

// names returns the names for which a TLS entry provides its certificate: the entry's hosts or, without any, the hosts
// of the rules for which the certificate is valid. Without either, the certificate serves all names without a
// certificate.
func (in *ingress) names(entry tlsEntry, cert *tls.Certificate) []string {
	if len(entry.hosts) > 0 {
		return entry.hosts
	}
	var names []string
	for name := range in.hosts {
		if name == "" {
			continue
		}
		asked := name
		if parent, ok := strings.CutPrefix(name, "*."); ok {
			asked = "x." + parent
		}
		if cert.Leaf.VerifyHostname(asked) == nil {
			names = append(names, name)
		}
	}
	return names
}
