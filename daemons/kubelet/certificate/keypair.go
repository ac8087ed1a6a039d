package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"sync"
	"time"
)

// KeyPair is a certificate in a file, which is loaded again when the file has changed.
type KeyPair struct {
	Cert, Key string
	mu        sync.Mutex
	readAt    time.Time
	pair      *tls.Certificate
}

// Get returns the certificate for a handshake. It is safe for concurrent use.
func (p *KeyPair) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	info, err := os.Stat(p.Cert)
	if err == nil && p.pair != nil && info.ModTime().Equal(p.readAt) {
		return p.pair, nil
	}
	pair, err2 := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err := errors.Join(err, err2); err != nil {
		if p.pair != nil {
			return p.pair, nil // the file is probably being written; serve the old certificate meanwhile
		}
		return nil, fmt.Errorf("read the serving certificate: %w", err)
	}
	p.pair, p.readAt = &pair, info.ModTime()
	return p.pair, nil
}

// SelfSigned is a self-signed certificate for a node that has no configured certificate. It is valid for a year, and
// replaced after four fifths of that.
type SelfSigned struct {
	name string
	ips  []string

	mu   sync.Mutex
	pair *tls.Certificate
}

// NewSelfSigned creates the certificate of a node with the given addresses.
func NewSelfSigned(name string, ips []string) (*SelfSigned, error) {
	pair, err := newSelfSignedPair(name, ips)
	return &SelfSigned{name: name, ips: ips, pair: pair}, err
}

// Get returns the certificate for a handshake. It is safe for concurrent use.
func (s *SelfSigned) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(renewalTime(s.pair.Leaf)) {
		next, err := newSelfSignedPair(s.name, s.ips)
		if err != nil {
			return nil, err
		}
		s.pair = next
	}
	return s.pair, nil
}

func newSelfSignedPair(name string, ips []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, ip := range ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create a serving certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("create a serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
