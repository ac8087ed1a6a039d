package metrics

import (
	"crypto/tls"
	"crypto/x509"
	"math"
	"sync/atomic"
	"time"
)

// ServingCertificate gives access to the certificate of the kubelet's server once it serves.
type ServingCertificate struct {
	get atomic.Pointer[func(*tls.ClientHelloInfo) (*tls.Certificate, error)]
}

// remainingSeconds returns the remaining lifetime of the certificate in seconds, or +Inf if there is none.
func (c *ServingCertificate) remainingSeconds() float64 {
	get := c.get.Load()
	if get == nil {
		return math.Inf(1)
	}
	pair, err := (*get)(nil)
	if err != nil || pair == nil || len(pair.Certificate) == 0 {
		return math.Inf(1)
	}
	leaf := pair.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return math.Inf(1)
		}
	}
	return time.Until(leaf.NotAfter).Seconds()
}

// Set sets the source of the certificate.
func (c *ServingCertificate) Set(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) {
	c.get.Store(&get)
}
