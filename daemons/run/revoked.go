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

	mu      sync.Mutex
	serials map[string]bool
	stamp   time.Time
	looked  time.Time
	lasting map[*lasting]struct{} // contexts to cancel when their certificate is revoked
	look    *time.Timer           // set while lasting is not empty
}

// lasting is a connection or response that lasts long.
type lasting struct {
	cert *x509.Certificate
	end  context.CancelCauseFunc
}

// revokedLookEvery is the minimum time between two checks of the file.
const revokedLookEvery = 2 * time.Second

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
	r.serials, r.stamp = serials, info.ModTime()
	return nil
}

// Check returns an error if the certificate is revoked.
func (r *Revoked) Check(cert *x509.Certificate) error {
	if r == nil || r.file == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) > revokedLookEvery {
		r.lookAgain()
	}
	return r.judge(cert)
}

// lookAgain reads the list if it has changed, and cancels what uses a certificate that is now revoked. The caller holds
// r.mu.
func (r *Revoked) lookAgain() {
	before := r.stamp
	if err := r.load(); err != nil {
		r.log.Error("look at the certificate revocation list; the last good one stays in force", "error", err)
	}
	if r.stamp.Equal(before) {
		return
	}
	for l := range r.lasting {
		if err := r.judge(l.cert); err != nil {
			l.end(err)
		}
	}
}

func (r *Revoked) judge(cert *x509.Certificate) error {
	if r.serials[cert.SerialNumber.Text(16)] {
		return fmt.Errorf(
			"the certificate of %s, serial number %x, is revoked",
			cert.Subject.CommonName,
			cert.SerialNumber,
		)
	}
	return nil
}

// While returns a context that ends when the certificate is revoked. It is for watches and streams, which outlast one
// check. The caller calls stop when they end.
func (r *Revoked) While(ctx context.Context, cert *x509.Certificate) (_ context.Context, stop context.CancelFunc) {
	if r == nil || r.file == "" {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	l := &lasting{cert, end}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.judge(cert); err != nil {
		end(err)
		return ctx, func() {}
	}
	if r.lasting == nil {
		r.lasting = map[*lasting]struct{}{}
	}
	r.lasting[l] = struct{}{}
	if r.look == nil {
		r.look = time.AfterFunc(revokedLookEvery, r.tick)
	}
	return ctx, func() {
		end(context.Canceled)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.lasting, l)
	}
}

// tick checks the list while there are lasting entries.
func (r *Revoked) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lasting) == 0 {
		r.look = nil
		return
	}
	r.lookAgain()
	r.look.Reset(revokedLookEvery)
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
