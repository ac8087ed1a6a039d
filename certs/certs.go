// Package certs issues and inspects the cluster's certificates: authorities, keys, kubeconfigs, and leaf certificates
// with the names and organizations that Kubernetes' RBAC expects. It does no I/O: it converts values to PEM and back.
// The packages in provision write the files, with kubeadm's layout.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Default lifetimes, the same as kubeadm's.
const (
	CALifetime   = 10 * 365 * 24 * time.Hour
	LeafLifetime = 365 * 24 * time.Hour
)

// backdate is how far new certificates are dated back, for machines whose clocks are a little behind.
const backdate = 5 * time.Minute

// Pair is a certificate and its key, both PEM.
type Pair struct {
	Cert []byte
	Key  []byte // private key, PKCS #8 or SEC 1
	// Chain is set for an authority that is not a trusted root. It has the certificates between the authority and a
	// root, in PEM, and is appended to every leaf.
	Chain []byte `json:",omitempty"`
}

// Request describes a leaf certificate to issue.
type Request struct {
	CommonName    string
	Organizations []string
	Hosts         []string // DNS names and IP addresses
	Usages        []x509.ExtKeyUsage
	Lifetime      time.Duration // zero means LeafLifetime
}

// NewCA returns a self-signed authority. A zero lifetime means CALifetime.
func NewCA(commonName string, lifetime time.Duration, now time.Time) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key of CA %s: %w", commonName, err)
	}
	if lifetime == 0 {
		lifetime = CALifetime
	}
	serial, err := newSerial()
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		DNSNames:     []string{commonName},
		NotBefore:    now.Add(-backdate), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:     true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign CA %s: %w", commonName, err)
	}
	return encodePair(der, key)
}

// Issue returns a leaf with a new key, signed by ca. The leaf never outlives ca.
func Issue(ca Pair, r Request, now time.Time) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key of %s: %w", r.CommonName, err)
	}
	der, err := Sign(ca, r, key.Public(), now)
	if err != nil {
		return Pair{}, err
	}
	pair, err := encodePair(der, key)
	pair.Cert = append(pair.Cert, ca.Chain...)
	return pair, err
}

// Sign returns the DER of a leaf for a public key.
func Sign(ca Pair, r Request, public crypto.PublicKey, now time.Time) ([]byte, error) {
	lifetime := r.Lifetime
	if lifetime == 0 {
		lifetime = LeafLifetime
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: r.CommonName, Organization: r.Organizations},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: r.Usages,
	}
	for _, host := range r.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return SignLeaf(ca, template, public, now)
}

// SignLeaf signs a leaf described by a template, and returns its DER. The leaf gets a serial number, is never a CA, and
// never outlives ca.
func SignLeaf(ca Pair, template *x509.Certificate, public crypto.PublicKey, now time.Time) ([]byte, error) {
	name := template.Subject.CommonName
	caCert, err := ParseCert(ca.Cert)
	if err != nil {
		return nil, fmt.Errorf("read the CA of %s: %w", name, err)
	}
	caKey, err := ParseKey(ca.Key)
	if err != nil {
		return nil, fmt.Errorf("read the CA key of %s: %w", name, err)
	}
	if !caCert.NotAfter.After(now) {
		return nil, fmt.Errorf("sign %s: CA %s expired on %s", name, caCert.Subject.CommonName,
			caCert.NotAfter.Format(time.DateOnly))
	}
	leaf := *template
	if leaf.SerialNumber, err = newSerial(); err != nil {
		return nil, err
	}
	if leaf.NotAfter.After(caCert.NotAfter) {
		leaf.NotAfter = caCert.NotAfter
	}
	leaf.BasicConstraintsValid, leaf.IsCA = true, false
	der, err := x509.CreateCertificate(rand.Reader, &leaf, caCert, public, caKey)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", name, err)
	}
	return der, nil
}

// NewKey returns a key pair for signing service account tokens: the private key and the public key, in PEM.
func NewKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a service-account key: %w", err)
	}
	if private, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encode a service-account key: %w", err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// ParseCert parses the first certificate of a PEM text.
func ParseCert(text []byte) (*x509.Certificate, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, errors.New("no certificate in the PEM text")
}

// ParseKey parses the first private key of a PEM text.
func ParseKey(text []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
		return nil, fmt.Errorf("a %T cannot sign", key)
	}
	return nil, errors.New("no private key in the PEM text")
}

func encodePair(der []byte, key crypto.Signer) (Pair, error) {
	text, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: EncodeCert(der), Key: text}, nil
}

// EncodeCert returns the PEM form of a DER certificate.
func EncodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}
