package certs_test

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"

	"clusterctl/certs"
)

// A client that trusts only the former authority trusts certificates of the next one, if the server also sends the
// cross-certificate. The reverse does not hold.
// Proves S37.
func TestCrossCertificatesLinkOldAndNewAuthorities(t *testing.T) {
	now := time.Now()
	former, err := certs.NewCA("kubernetes", time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	next, err := certs.NewCA("kubernetes", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	if next.Chain, err = certs.Cross(former, next.Cert, now); err != nil {
		t.Fatal(err)
	}
	leaf, err := certs.Issue(next, certs.Daemon("x"), now)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(certs.ChainOf(leaf.Cert), next.Chain) {
		t.Errorf("the leaf comes without what vouches for its authority: %s", leaf.Cert)
	}
	if cross := certs.Intermediates(append(bytes.Clone(next.Cert), next.Chain...)); !bytes.Equal(cross, next.Chain) {
		t.Errorf("between root and leaf is %s", cross)
	}
	old, err := certs.Issue(former, certs.Daemon("x"), now)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what    string
		shown   []byte
		trusted []byte
		at      time.Duration
		good    bool
	}{
		{"the next one's to who trusts the next one", leaf.Cert, next.Cert, 0, true},
		{"the next one's to who trusts the former one", leaf.Cert, former.Cert, 0, true},
		{"the same when the former one has ended", leaf.Cert, former.Cert, 2 * time.Hour, false},
		{"the former one's to who trusts the next one", old.Cert, next.Cert, 0, false},
	} {
		cert, err := certs.ParseCert(c.shown)
		if err != nil {
			t.Fatal(err)
		}
		roots, between := x509.NewCertPool(), x509.NewCertPool()
		roots.AppendCertsFromPEM(c.trusted)
		between.AppendCertsFromPEM(certs.ChainOf(c.shown))
		_, err = cert.Verify(
			x509.VerifyOptions{
				Roots:         roots,
				Intermediates: between,
				CurrentTime:   now.Add(c.at),
				KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			},
		)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
