package certs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// RenewBefore is how long before its expiry a leaf is renewed. A leaf with less than twice that lifetime is renewed at
// half of its life.
const RenewBefore = 30 * 24 * time.Hour

// ReissueReason returns why a leaf must be issued again. It returns "" if the leaf matches r, is signed by ca, and
// remains valid long enough.
func ReissueReason(p Pair, ca []byte, r Request, now time.Time) string {
	_, reason := Inspect(p, ca, r, now)
	return reason
}

// Inspect returns the same reason as Due, with the certificate.
func Inspect(p Pair, ca []byte, r Request, now time.Time) (cert *x509.Certificate, reason string) {
	cert, err := ParseCert(p.Cert)
	if err != nil {
		return nil, "cannot be read"
	}
	return cert, reissueReason(cert, p.Key, ca, r, now)
}

func reissueReason(cert *x509.Certificate, keyText, ca []byte, r Request, now time.Time) string {
	key, err := ParseKey(keyText)
	if err != nil {
		return "its key cannot be read"
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil || !bytes.Equal(public, cert.RawSubjectPublicKeyInfo) {
		return "its key is another's"
	}
	authority, err := ParseCert(ca)
	if err != nil {
		return "its CA cannot be read"
	}
	if cert.CheckSignatureFrom(authority) != nil {
		return "signed by another CA"
	}
	if reason := requestDifference(cert, r); reason != "" {
		return reason
	}
	life := cert.NotAfter.Sub(cert.NotBefore)
	switch left := cert.NotAfter.Sub(now); {
	case left <= 0:
		return "expired on " + cert.NotAfter.UTC().Format(time.DateOnly)
	case left < min(RenewBefore, life/2) && cert.NotAfter.Before(authority.NotAfter):
		return "expires on " + cert.NotAfter.UTC().Format(time.DateOnly)
	}
	return ""
}

// CheckUsable returns why a leaf is not accepted: it cannot be read, the key does not match, no authority in the PEM
// text has signed it, or it has expired. It does not check what the leaf may be used for.
func CheckUsable(p Pair, authorities []byte, now time.Time) error {
	cert, err := ParseCert(p.Cert)
	if err != nil {
		return err
	}
	key, err := ParseKey(p.Key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil || !bytes.Equal(public, cert.RawSubjectPublicKeyInfo) {
		return errors.New("its key is another's")
	}
	list, err := parseAll(authorities)
	if err != nil {
		return fmt.Errorf("read its authority: %w", err)
	}
	if !slices.ContainsFunc(list, func(ca *x509.Certificate) bool { return cert.CheckSignatureFrom(ca) == nil }) {
		return errors.New("signed by another CA")
	}
	if !now.Before(cert.NotAfter) {
		return errors.New("expired on " + cert.NotAfter.UTC().Format(time.DateOnly))
	}
	return nil
}

func requestDifference(cert *x509.Certificate, r Request) string {
	if cert.Subject.CommonName != r.CommonName || !slices.Equal(cert.Subject.Organization, r.Organizations) {
		return fmt.Sprintf("is for %s, should be for %s", cert.Subject.CommonName, r.CommonName)
	}
	if !slices.Equal(cert.ExtKeyUsage, r.Usages) {
		return "has other usages"
	}
	current, wants := map[string]bool{}, map[string]bool{}
	for _, ip := range cert.IPAddresses {
		current[ip.String()] = true
	}
	for _, name := range cert.DNSNames {
		current[name] = true
	}
	for _, h := range r.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			h = ip.String()
		}
		wants[h] = true
		if !current[h] {
			return "does not name " + h
		}
	}
	for h := range current {
		if !wants[h] {
			return "still names " + h
		}
	}
	return ""
}

// IssuedBefore reports whether a certificate was issued before a time, to the second.
func IssuedBefore(cert *x509.Certificate, t time.Time) bool {
	return cert.NotBefore.Add(backdate).Before(t.Truncate(time.Second))
}
