package certs

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Cross returns a certificate of another authority signed by ca, in PEM. A client that trusts only ca accepts leaves of
// the other authority if it receives this certificate with them. It expires with the first of the two authorities.
func Cross(ca Pair, other []byte, now time.Time) ([]byte, error) {
	by, err := ParseCert(ca.Cert)
	if err != nil {
		return nil, fmt.Errorf("read the CA that is to vouch for another: %w", err)
	}
	key, err := ParseKey(ca.Key)
	if err != nil {
		return nil, fmt.Errorf("read the key of the CA that is to vouch for another: %w", err)
	}
	of, err := ParseCert(other)
	if err != nil {
		return nil, fmt.Errorf("read the CA that is vouched for: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: of.Subject, DNSNames: of.DNSNames, SubjectKeyId: of.SubjectKeyId,
		AuthorityKeyId: by.SubjectKeyId, // not set automatically if both have the same name
		NotBefore: now.Add(
			-backdate,
		), NotAfter: of.NotAfter, KeyUsage: of.KeyUsage, IsCA: true, BasicConstraintsValid: true,
	}
	if by.NotAfter.Before(template.NotAfter) {
		template.NotAfter = by.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, of.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("have CA %s vouch for another: %w", by.Subject.CommonName, err)
	}
	return EncodeCert(der), nil
}

// SignedBy reports whether one of the authorities of a PEM text has signed a certificate.
func SignedBy(cert *x509.Certificate, authorities []byte) bool {
	list, err := parseAll(authorities)
	return err == nil &&
		slices.ContainsFunc(list, func(ca *x509.Certificate) bool { return cert.CheckSignatureFrom(ca) == nil })
}

// ChainOf returns the certificates after the first one of a PEM text, in PEM.
func ChainOf(text []byte) []byte {
	if bytes.Count(text, []byte("-----BEGIN ")) < 2 {
		return nil
	}
	list, err := parseAll(text)
	if err != nil {
		return nil
	}
	return encodeAll(list[1:])
}

// Intermediates returns the certificates of a PEM text that are not roots, in PEM. A client that trusts only the root
// needs them.
func Intermediates(text []byte) []byte {
	list, err := parseAll(text)
	if err != nil {
		return nil
	}
	var between []*x509.Certificate
	for _, c := range list {
		// An authority and its successor may have the same name; the key IDs distinguish them.
		if !bytes.Equal(c.RawSubject, c.RawIssuer) ||
			len(c.AuthorityKeyId) > 0 && !bytes.Equal(c.AuthorityKeyId, c.SubjectKeyId) {
			between = append(between, c)
		}
	}
	return encodeAll(between)
}

func encodeAll(list []*x509.Certificate) (text []byte) {
	for _, c := range list {
		text = append(text, EncodeCert(c.Raw)...)
	}
	return text
}

// KeyID returns the subject key ID of the first certificate in a PEM text, in hex, which identifies an authority. It
// returns "" if there is none.
func KeyID(text []byte) string {
	cert, err := ParseCert(text)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(cert.SubjectKeyId)
}

// Authority checks a certificate and key to be used as an authority. It returns the pair with only that certificate.
// Other certificates in the text are dropped, because trusting a root would mean trusting everything it has ever
// signed.
func Authority(p Pair, now time.Time) (Pair, error) {
	cert, err := ParseCert(p.Cert)
	if err != nil {
		return Pair{}, fmt.Errorf("read the authority's certificate: %w", err)
	}
	key, err := ParseKey(p.Key)
	if err != nil {
		return Pair{}, fmt.Errorf("read the authority's key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	switch {
	case err != nil || !bytes.Equal(public, cert.RawSubjectPublicKeyInfo):
		return Pair{}, errors.New("the key is not the certificate's")
	case !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return Pair{}, fmt.Errorf("the certificate of %s is not a certificate authority: it must not sign certificates",
			cert.Subject.CommonName)
	case cert.KeyUsage&x509.KeyUsageCRLSign == 0:
		return Pair{}, fmt.Errorf(
			"the authority %s may not sign revocation lists (key usage cRLSign): nothing could be revoked",
			cert.Subject.CommonName)
	case !now.Before(cert.NotAfter):
		return Pair{}, fmt.Errorf("the authority %s ended on %s", cert.Subject.CommonName,
			cert.NotAfter.UTC().Format(time.DateOnly))
	case len(cert.SubjectKeyId) == 0:
		return Pair{}, fmt.Errorf("the authority %s has no subject key identifier, which distinguishes authorities",
			cert.Subject.CommonName)
	}
	return Pair{Cert: EncodeCert(cert.Raw), Key: p.Key}, nil
}
