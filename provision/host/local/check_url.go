package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"

	"clusterctl/provision/host"
)

const answerTimeout = 5 * time.Second

// CheckURL checks a URL as seen from this machine.
func (h *Host) CheckURL(ctx context.Context, url string, as host.Client) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if as.CA != "" {
		text, err := os.ReadFile(as.CA)
		if err != nil {
			return fmt.Errorf("ask %s: %w", url, err)
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(text)
	}
	// A machine that is being set up has no certificate yet, and one that was off for long has an expired one. A server
	// that answers anonymous requests counts as healthy then.
	if pair, err := tls.LoadX509KeyPair(as.Cert, as.Key); err == nil {
		verifying := config.Clone()
		verifying.Certificates = []tls.Certificate{pair}
		if status, err := getStatus(ctx, url, verifying); err != nil || status != http.StatusUnauthorized {
			return healthError(url, status, err)
		}
	}
	status, err := getStatus(ctx, url, config)
	return healthError(url, status, err)
}

func getStatus(ctx context.Context, url string, config *tls.Config) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}).Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return 0, host.ErrNothingListens
	}
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func healthError(url string, status int, err error) error {
	if err == nil && status != http.StatusOK {
		err = host.StatusError(status)
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	return nil
}
