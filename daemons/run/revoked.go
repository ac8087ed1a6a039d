package run

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"clusterctl/certs"
)

// Revoked is a certificate revocation list in a file that is read again when it
// changes: what is revoked there is refused within seconds, without a restart.
type Revoked struct {
	file, ca string
	log      *slog.Logger

	mu      sync.Mutex
	serials map[string]bool
	stamp   time.Time
	looked  time.Time
}

// revokedLookEvery is how often the file is looked at, at most.
const revokedLookEvery = 2 * time.Second

// NewRevoked reads the list in file, which the authority in the file ca must have
// signed. Without a file nothing is revoked. A list that cannot be read is an error at
// first, and later leaves the last good one in force.
func NewRevoked(file, ca string, log *slog.Logger) (*Revoked, error) {
	r := &Revoked{file: file, ca: ca, log: log}
	if file == "" {
		return r, nil
	}
	if err := r.load(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Revoked) load() error {
	r.looked = time.Now()
	info, err := os.Stat(r.file)
	if err != nil {
		return fmt.Errorf("read the certificate revocation list: %w", err)
	}
	if r.serials != nil && info.ModTime().Equal(r.stamp) {
		return nil
	}
	text, err := os.ReadFile(r.file)
	if err != nil {
		return fmt.Errorf("read the certificate revocation list: %w", err)
	}
	ca, err := os.ReadFile(r.ca)
	if err != nil {
		return fmt.Errorf("read the CA of the certificate revocation list: %w", err)
	}
	serials, err := certs.ParseRevocations(text, ca)
	if err != nil {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	r.serials, r.stamp = serials, info.ModTime()
	return nil
}

// Check returns an error when the certificate is revoked.
func (r *Revoked) Check(cert *x509.Certificate) error {
	if r == nil || r.file == "" {
		return nil
	}
	r.mu.Lock()
	if time.Since(r.looked) > revokedLookEvery {
		if err := r.load(); err != nil {
			r.log.Error("look at the certificate revocation list; the last good one stays in force", "error", err)
		}
	}
	revoked := r.serials[cert.SerialNumber.Text(16)]
	r.mu.Unlock()
	if revoked {
		return fmt.Errorf("the certificate of %s, serial number %x, is revoked", cert.Subject.CommonName, cert.SerialNumber)
	}
	return nil
}

// verify is for tls.Config.VerifyConnection: it refuses the handshake of who is revoked.
func (r *Revoked) verify(state tls.ConnectionState) error {
	for _, c := range state.PeerCertificates {
		if err := r.Check(c); err != nil {
			return err
		}
	}
	return nil
}
