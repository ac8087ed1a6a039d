package run

import (
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// Authorities holds the certificates in a file. The file is read again when it changes, so that an authority can be
// replaced without a restart. If the new file is invalid, the last valid certificates stay in use.
type Authorities struct {
	file string

	mu        sync.Mutex
	pool      *x509.CertPool
	modTime   time.Time
	checkedAt time.Time
}

// authoritiesCheckInterval is the minimum time between two checks of the file.
const authoritiesCheckInterval = 2 * time.Second

// NewAuthorities reads the file.
func NewAuthorities(file string) (*Authorities, error) {
	a := &Authorities{file: file}
	return a, a.load()
}

func (a *Authorities) load() error {
	a.checkedAt = time.Now()
	info, err := os.Stat(a.file)
	if err != nil {
		return fmt.Errorf("read authorities: %w", err)
	}
	if a.pool != nil && info.ModTime().Equal(a.modTime) {
		return nil
	}
	text, err := os.ReadFile(a.file)
	if err != nil {
		return fmt.Errorf("read authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("read authorities: no certificate in %s", a.file)
	}
	a.pool, a.modTime = pool, info.ModTime()
	return nil
}

// Pool returns the certificates of the last valid version of the file.
func (a *Authorities) Pool() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.checkedAt) > authoritiesCheckInterval {
		_ = a.load() // the last valid ones stay in use; a mismatch shows up in the handshake
	}
	return a.pool
}
