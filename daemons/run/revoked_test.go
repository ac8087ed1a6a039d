package run

import (
	"context"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"clusterctl/certs"
)

// What uses a revoked certificate ends within seconds, and everything else continues.
// Proves S12.
func TestRevocationEndsActiveUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRevocations(t)
		lost, kept := l.leaf("lost"), l.leaf("kept")
		l.write(time.Now())
		revoked, err := NewRevoked(l.file, l.ca, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ends, stopEnds := revoked.ContextFor(t.Context(), lost)
		lasts, stopLasts := revoked.ContextFor(t.Context(), kept)
		<-time.After(10 * time.Second) // fake time of synctest
		if ends.Err() != nil || lasts.Err() != nil {
			t.Fatalf("nothing is revoked, and yet they end: %v, %v", context.Cause(ends), context.Cause(lasts))
		}
		l.write(time.Now(), lost)
		<-time.After(revokedCheckInterval + time.Second)
		if ends.Err() == nil {
			t.Error("it accepts a revoked certificate")
		}
		if lasts.Err() != nil {
			t.Errorf("what has another certificate ends: %v", context.Cause(lasts))
		}
		if again, stop := revoked.ContextFor(t.Context(), lost); again.Err() == nil {
			stop()
			t.Error("it begins with a certificate that is revoked")
		}
		if err := revoked.Check(lost); err == nil {
			t.Error("the certificate is not refused")
		}
		stopEnds()
		stopLasts()
		if lasts.Err() == nil {
			t.Error("what was stopped goes on")
		}
		<-time.After(time.Minute)
		revoked.mu.Lock()
		defer revoked.mu.Unlock()
		if len(revoked.activeUses) != 0 || revoked.timer != nil {
			t.Error("it looks at the list for nothing")
		}
	})
}

// testAuthority is an authority with a revocation list.
type testAuthority struct {
	t        *testing.T
	ca, file string
	pair     certs.Pair
}

func newRevocations(t *testing.T) *testAuthority {
	t.Helper()
	l := &testAuthority{t: t, ca: filepath.Join(t.TempDir(), "ca.crt"), file: filepath.Join(t.TempDir(), "ca.crl")}
	var err error
	if l.pair, err = certs.NewCA("kubernetes", 0, time.Now()); err == nil {
		err = os.WriteFile(l.ca, l.pair.Cert, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *testAuthority) leaf(name string) *x509.Certificate {
	l.t.Helper()
	pair, err := certs.Issue(l.pair, certs.Daemon(name), time.Now())
	if err != nil {
		l.t.Fatal(err)
	}
	cert, err := certs.ParseCert(pair.Cert)
	if err != nil {
		l.t.Fatal(err)
	}
	return cert
}

// write writes the list with a modification time, because a file system's timestamps are too coarse for a test.
func (l *testAuthority) write(at time.Time, revoked ...*x509.Certificate) {
	l.t.Helper()
	var entries []certs.Revoked
	for _, c := range revoked {
		entries = append(entries, certs.Revoked{Serial: c.SerialNumber.Text(16), At: at})
	}
	der, err := certs.RevocationList(l.pair, entries, at)
	if err == nil {
		err = os.WriteFile(l.file, certs.EncodeRevocations(der), 0o600)
	}
	if err == nil {
		err = os.Chtimes(l.file, at, at)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}
