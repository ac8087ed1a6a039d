package certs

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// Revoked is a certificate that is not to be trusted any more though it has not ended.
type Revoked struct {
	CA     string    `json:"ca"`     // ClusterCA, EtcdCA
	Serial string    `json:"serial"` // hexadecimal
	Name   string    `json:"name"`   // common name, for people
	At     time.Time `json:"at"`
	Until  time.Time `json:"until"` // when it ends anyway, and leaves the list
}

// RevocationList returns the DER of an authority's list of what is revoked. The same
// list gives the same bytes, so that files are compared by content. What has ended is
// no longer in it.
func RevocationList(ca Pair, revoked []Revoked, now time.Time) ([]byte, error) {
	cert, err := ParseCert(ca.Cert)
	if err != nil {
		return nil, fmt.Errorf("read the CA of a revocation list: %w", err)
	}
	key, err := ParseKey(ca.Key)
	if err != nil {
		return nil, fmt.Errorf("read the CA key of a revocation list: %w", err)
	}
	last := cert.NotBefore
	template := &x509.RevocationList{NextUpdate: cert.NotAfter}
	for _, r := range revoked {
		serial, ok := new(big.Int).SetString(r.Serial, 16)
		if !ok {
			return nil, fmt.Errorf("revoke %q: it is no serial number", r.Serial)
		}
		if r.At.After(last) {
			last = r.At
		}
		if r.Until.IsZero() || now.Before(r.Until) {
			template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: serial, RevocationTime: r.At.UTC().Truncate(time.Second)})
		}
	}
	slices.SortFunc(template.RevokedCertificateEntries, func(a, b x509.RevocationListEntry) int { return a.SerialNumber.Cmp(b.SerialNumber) })
	template.ThisUpdate = last.UTC().Truncate(time.Second)
	template.Number = big.NewInt(template.ThisUpdate.Unix())
	// Without a source of randomness the signature follows from the content, by RFC 6979.
	der, err := x509.CreateRevocationList(nil, template, cert, key)
	if err != nil {
		return nil, fmt.Errorf("sign the revocation list of %s: %w", cert.Subject.CommonName, err)
	}
	return der, nil
}

// EncodeRevocations returns the PEM form of a DER list.
func EncodeRevocations(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// ParseRevocations reads a list, PEM or DER, and returns the serial numbers that are
// revoked, hexadecimal, by the authority in the PEM text ca that signed it.
func ParseRevocations(text, ca []byte) (map[string]bool, error) {
	if block, _ := pem.Decode(text); block != nil {
		text = block.Bytes
	}
	list, err := x509.ParseRevocationList(text)
	if err != nil {
		return nil, fmt.Errorf("read a revocation list: %w", err)
	}
	authority, err := ParseCert(ca)
	if err != nil {
		return nil, fmt.Errorf("read the CA of a revocation list: %w", err)
	}
	if err := list.CheckSignatureFrom(authority); err != nil {
		return nil, fmt.Errorf("check the revocation list of %s: %w", authority.Subject.CommonName, err)
	}
	out := map[string]bool{}
	for _, e := range list.RevokedCertificateEntries {
		out[e.SerialNumber.Text(16)] = true
	}
	return out, nil
}
