package run

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"clusterctl/certs"
)

// A replaced authority is accepted within seconds, and an invalid file changes nothing.
// Proves S12.
func TestReplacedAuthoritiesAreLoaded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(text []byte, stamp time.Time) {
		t.Helper()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewAuthorities(file); err == nil {
		t.Error("a file that is not there is taken")
	}
	now := time.Now()
	first, second := newAuthority(t, now), newAuthority(t, now)
	synctest.Test(t, func(t *testing.T) {
		write(first.Cert, now)
		a, err := NewAuthorities(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range []struct {
			text  []byte
			holds certs.Pair
		}{{second.Cert, second}, {[]byte("nonsense"), second}, {first.Cert, first}} {
			write(step.text, now.Add(time.Duration(i+1)*time.Minute))
			<-time.After(authoritiesCheckInterval + time.Second) // fake time of synctest
			if !a.Pool().Equal(poolOf(t, step.holds)) {
				t.Errorf("step %d: other authorities are believed than those of the file", i)
			}
		}
	})
}

func newAuthority(t *testing.T, now time.Time) certs.Pair {
	t.Helper()
	ca, err := certs.NewCA("authority", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func poolOf(t *testing.T, ca certs.Pair) *x509.CertPool {
	t.Helper()
	block, _ := pem.Decode(ca.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}
