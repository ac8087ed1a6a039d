package run

import (
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// Authorities are the certificates in a file, which is read again when it changes: an authority is replaced without a
// restart. What cannot be read leaves the last good ones in force.
type Authorities struct {
	file string

	mu     sync.Mutex
	pool   *x509.CertPool
	stamp  time.Time
	looked time.Time
}

// authoritiesLookEvery is how often the file is looked at, at most.
const authoritiesLookEvery = 2 * time.Second

// NewAuthorities reads the file.
func NewAuthorities(file string) (*Authorities, error) {
	a := &Authorities{file: file}
	return a, a.load()
}

func (a *Authorities) load() error {
	a.looked = time.Now()
	info, err := os.Stat(a.file)
	if err != nil {
		return fmt.Errorf("read authorities: %w", err)
	}
	if a.pool != nil && info.ModTime().Equal(a.stamp) {
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
	a.pool, a.stamp = pool, info.ModTime()
	return nil
}

// Pool is what the file holds, or held when it last made sense.
func (a *Authorities) Pool() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.looked) > authoritiesLookEvery {
		_ = a.load() // the last good ones stay in force; who connects hears that they do not fit
	}
	return a.pool
}
