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

// KeyPair is a certificate that is reloaded when its file has changed.
type KeyPair struct {
	Cert, Key string
	mu        sync.Mutex
	readAt    time.Time
	pair      *tls.Certificate
}

func (p *KeyPair) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Cert == "" {
		return p.pair, nil
	}
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

// CreateSelfSigned creates a self-signed certificate for a node that has no configured certificate.
func (p *KeyPair) CreateSelfSigned(name string, ips []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
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
		return fmt.Errorf("make a serving certificate: %w", err)
	}
	p.pair = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return nil
}
