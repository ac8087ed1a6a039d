package certs

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// Revoked is a certificate that must not be trusted although it has not expired.
type Revoked struct {
	CA     string    `json:"ca"`     // such as ClusterCA or EtcdCA
	Serial string    `json:"serial"` // hexadecimal
	Name   string    `json:"name"`   // common name, for display
	At     time.Time `json:"at"`
	Until  time.Time `json:"until"` // its expiry, after which it is left out of the list
}

// RevocationList returns an authority's revocation list in DER. Expired certificates are left out. The same input gives
// the same bytes, so that files can be compared by content.
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
			return nil, fmt.Errorf("revoke %q: it is not a serial number", r.Serial)
		}
		if r.At.After(last) {
			last = r.At
		}
		if r.Until.IsZero() || now.Before(r.Until) {
			template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
				x509.RevocationListEntry{SerialNumber: serial, RevocationTime: r.At.UTC().Truncate(time.Second)})
		}
	}
	slices.SortFunc(template.RevokedCertificateEntries,
		func(a, b x509.RevocationListEntry) int { return a.SerialNumber.Cmp(b.SerialNumber) })
	template.ThisUpdate = last.UTC().Truncate(time.Second)
	template.Number = big.NewInt(template.ThisUpdate.Unix())
	// Without a source of randomness, the signature is deterministic according to RFC 6979.
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

// ParseRevocations parses revocation lists in PEM, or one in DER, and returns the revoked serial numbers in hex. Each
// list must be signed by one of the authorities in the PEM text ca.
func ParseRevocations(text, ca []byte) (map[string]bool, error) {
	list, err := Revocations(text, ca)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, r := range list {
		out[r.Serial] = true
	}
	return out, nil
}

// Revocations parses revocation lists like ParseRevocations, and also returns the times of revocation. Name and expiry
// of the certificates are not in the lists.
func Revocations(text, ca []byte) (revoked []Revoked, err error) {
	authorities, err := parseAll(ca)
	if err != nil {
		return nil, fmt.Errorf("read the CA of a revocation list: %w", err)
	}
	for der, rest := firstList(text); ; der, rest = firstList(rest) {
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			return nil, fmt.Errorf("read a revocation list: %w", err)
		}
		if !slices.ContainsFunc(authorities,
			func(by *x509.Certificate) bool { return list.CheckSignatureFrom(by) == nil }) {
			return nil, fmt.Errorf("check the revocation list of %s: none of the authorities has signed it",
				list.Issuer.CommonName)
		}
		for _, e := range list.RevokedCertificateEntries {
			revoked = append(
				revoked,
				Revoked{CA: authorityName(list.Issuer.CommonName), Serial: e.SerialNumber.Text(16),
					At: e.RevocationTime},
			)
		}
		if block, _ := pem.Decode(rest); block == nil {
			return revoked, nil
		}
	}
}

// authorityName returns the name of the authority that has a common name.
func authorityName(commonName string) string {
	for name, own := range CommonNames {
		if own == commonName {
			return name
		}
	}
	return ""
}

// firstList returns the first revocation list of a text in DER, and the rest of the text.
func firstList(text []byte) (der, rest []byte) {
	if block, rest := pem.Decode(text); block != nil {
		return block.Bytes, rest
	}
	return text, nil
}

// SplitPEM returns the certificates of a PEM text, each as a text of its own.
func SplitPEM(text []byte) (list [][]byte) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			list = append(list, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
		}
	}
	return list
}

// parseAll parses all certificates of a PEM text. A text without certificates is an error.
func parseAll(text []byte) (list []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		list = append(list, cert)
	}
	if len(list) == 0 {
		return nil, errors.New("no certificate in it")
	}
	return list, nil
}
