package route

import (
	"crypto/tls"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// certificates are by the names that clients ask for.
type certificates struct {
	exact    map[string]*tls.Certificate
	wildcard map[string]*tls.Certificate // by what follows the first label
	rest     *tls.Certificate            // of Ingresses that name neither a host for TLS nor one in their rules
}

// named is the certificate of a name, in lower case.
func (c *certificates) named(server string) *tls.Certificate {
	if cert := c.exact[server]; cert != nil {
		return cert
	}
	if _, parent, ok := strings.Cut(server, "."); ok {
		if cert := c.wildcard[parent]; cert != nil {
			return cert
		}
	}
	return nil
}

// add gives a certificate to a name, unless an older Ingress has given it one.
func (c *certificates) add(name string, cert *tls.Certificate) {
	to, name := c.exact, strings.ToLower(name)
	if parent, ok := strings.CutPrefix(name, "*."); ok {
		to, name = c.wildcard, parent
	}
	if to[name] == nil {
		to[name] = cert
	}
}

// secret is what a Secret says as a certificate.
type secret struct {
	cert *tls.Certificate
	err  error
}

func readSecret(s *corev1.Secret) secret {
	if s.Type != corev1.SecretTypeTLS {
		return secret{err: fmt.Errorf("is of type %q; it must be of type %s", s.Type, corev1.SecretTypeTLS)}
	}
	cert, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return secret{err: fmt.Errorf("has no certificate that can be used: %w", err)}
	}
	return secret{cert: &cert}
}

// names are those for which a TLS entry of an Ingress gives its certificate: its own hosts, and without any those of the rules
// that the certificate is good for. Neither: everybody who asks for another name is shown it.
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
