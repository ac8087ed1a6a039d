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

// Answers asks a URL of this machine.
func (h *Host) Answers(ctx context.Context, url, ca string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("ask %s: %w", url, err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("ask %s: %w", url, host.ErrNothingListens)
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: it answers %s", url, resp.Status)
	}
	return nil
}
