package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"clusterctl/certs"
)

// Revoked is a certificate revocation list in a file that is read again when it changes. A certificate that is revoked
// there is rejected within seconds, without a restart.
type Revoked struct {
	file string
	cas  []string
	log  *slog.Logger

	mu         sync.Mutex
	serials    map[string]bool
	modTime    time.Time
	checkedAt  time.Time
	activeUses map[*activeUse]struct{} // contexts to cancel when their certificate is revoked
	timer      *time.Timer             // set while activeUses is not empty
}

// activeUse is a connection or response that lasts long.
type activeUse struct {
	cert   *x509.Certificate
	cancel context.CancelCauseFunc
}

// revokedCheckInterval is the minimum time between two checks of the file.
const revokedCheckInterval = 2 * time.Second

// NewRevoked reads the list in file, which the authority in the file ca must have signed. The file may also contain
// lists of the authorities in more. Without a file, nothing is revoked. An invalid list is an error at first. Later the
// last valid list stays in use.
func NewRevoked(file, ca string, log *slog.Logger, more ...string) (*Revoked, error) {
	r := &Revoked{file: file, cas: append([]string{ca}, more...), log: log}
	if file == "" {
		return r, nil
	}
	if err := r.load(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Revoked) load() error {
	r.checkedAt = time.Now()
	info, err := os.Stat(r.file)
	if err != nil {
		return fmt.Errorf("read the certificate revocation list: %w", err)
	}
	if r.serials != nil && info.ModTime().Equal(r.modTime) {
		return nil
	}
	text, err := os.ReadFile(r.file)
	if err != nil {
		return fmt.Errorf("read the certificate revocation list: %w", err)
	}
	var ca []byte
	for _, file := range r.cas {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the CA of the certificate revocation list: %w", err)
		}
		ca = append(append(ca, text...), '\n')
	}
	serials, err := certs.ParseRevocations(text, ca)
	if err != nil {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	r.serials, r.modTime = serials, info.ModTime()
	return nil
}

// Check returns an error if the certificate is revoked.
func (r *Revoked) Check(cert *x509.Certificate) error {
	if r == nil || r.file == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.checkedAt) > revokedCheckInterval {
		r.refresh()
	}
	return r.checkSerial(cert)
}

// refresh reads the list if it has changed, and cancels what uses a certificate that is now revoked. The caller holds
// r.mu.
func (r *Revoked) refresh() {
	before := r.modTime
	if err := r.load(); err != nil {
		r.log.Error("read the certificate revocation list; the last good one stays in force", "error", err)
	}
	if r.modTime.Equal(before) {
		return
	}
	for l := range r.activeUses {
		if err := r.checkSerial(l.cert); err != nil {
			l.cancel(err)
		}
	}
}

func (r *Revoked) checkSerial(cert *x509.Certificate) error {
	if r.serials[cert.SerialNumber.Text(16)] {
		return fmt.Errorf("the certificate of %s, serial number %x, is revoked", cert.Subject.CommonName,
			cert.SerialNumber)
	}
	return nil
}

// ContextFor returns a context that ends when the certificate is revoked. It is for watches and streams, which outlast
// one check. The caller calls stop when they end.
func (r *Revoked) ContextFor(ctx context.Context, cert *x509.Certificate) (_ context.Context, stop context.CancelFunc) {
	if r == nil || r.file == "" {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	l := &activeUse{cert, end}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkSerial(cert); err != nil {
		end(err)
		return ctx, func() {}
	}
	if r.activeUses == nil {
		r.activeUses = map[*activeUse]struct{}{}
	}
	r.activeUses[l] = struct{}{}
	if r.timer == nil {
		r.timer = time.AfterFunc(revokedCheckInterval, r.checkActive)
	}
	return ctx, func() {
		end(context.Canceled)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.activeUses, l)
	}
}

// checkActive checks the list while there are lasting entries.
func (r *Revoked) checkActive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.activeUses) == 0 {
		r.timer = nil
		return
	}
	r.refresh()
	r.timer.Reset(revokedCheckInterval)
}

// verify is for tls.Config.VerifyConnection. It rejects handshakes with a revoked certificate.
func (r *Revoked) verify(state tls.ConnectionState) error {
	for _, c := range state.PeerCertificates {
		if err := r.Check(c); err != nil {
			return err
		}
	}
	return nil
}
