package apiserver

import (
	"crypto/tls"
	"os"
	"sync"
	"time"
)

// certificateFile is a certificate and its key in files that may be replaced while the server runs. A rotated
// certificate needs no restart.
type certificateFile struct {
	cert, key string

	mu        sync.Mutex
	pair      *tls.Certificate
	stamp     time.Time
	checkedAt time.Time
}

// certificateFileInterval is the minimum time between two checks of the files.
const certificateFileInterval = 10 * time.Second

func newCertificateFile(cert, key string) (*certificateFile, error) {
	p := &certificateFile{cert: cert, key: key}
	_, err := p.get()
	return p, err
}

// get returns the newest pair that could be read.
func (p *certificateFile) get() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.pair != nil && now.Sub(p.checkedAt) < certificateFileInterval {
		return p.pair, nil
	}
	p.checkedAt = now
	info, err := os.Stat(p.cert)
	if err == nil && p.pair != nil && info.ModTime().Equal(p.stamp) {
		return p.pair, nil
	}
	pair, loadErr := tls.LoadX509KeyPair(p.cert, p.key)
	if loadErr != nil {
		if p.pair != nil {
			return p.pair, nil // the files may be half replaced; the next check will find both
		}
		return nil, loadErr
	}
	p.pair = &pair
	if err == nil {
		p.stamp = info.ModTime()
	}
	return p.pair, nil
}
