// Package remote calls other servers for authentication and authorization. It sends them reviews, and receives the
// result in the review's status. Packages authn and authz make the reviews and evaluate the results.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Server receives reviews.
type Server struct {
	url      string
	client   *http.Client
	attempts int
}

// New returns the server of a kubeconfig, given its text and its path. timeout limits one attempt. other reads the
// files that the kubeconfig names, so that a caller that watches the kubeconfig can watch them as well.
func New(text []byte, path string, timeout time.Duration, other func(path string) ([]byte, error)) (*Server, error) {
	url, client, err := Client(text, path, timeout, other)
	if err != nil {
		return nil, err
	}
	return &Server{url: url, client: client, attempts: 3}, nil
}

// Client returns the URL of a kubeconfig's cluster and an HTTP client with the credentials of its user. Paths in it are
// relative to its own. other reads the files that it names, except a token file, which the client reads itself whenever
// it changes.
func Client(
	text []byte,
	path string,
	timeout time.Duration,
	other func(path string) ([]byte, error),
) (url string, client *http.Client, err error) {
	loaded, err := clientcmd.Load(text)
	if err != nil {
		return "", nil, fmt.Errorf("read the webhook's configuration %s: %w", path, err)
	}
	for _, cluster := range loaded.Clusters {
		cluster.LocationOfOrigin = path
	}
	for _, user := range loaded.AuthInfos {
		user.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(loaded); err != nil {
		return "", nil, fmt.Errorf("read the webhook's configuration %s: %w", path, err)
	}
	for _, cluster := range loaded.Clusters {
		if err := inlineFile(&cluster.CertificateAuthority, &cluster.CertificateAuthorityData, other); err != nil {
			return "", nil, fmt.Errorf("read the webhook's configuration %s: %w", path, err)
		}
	}
	for _, user := range loaded.AuthInfos {
		if err := errors.Join(inlineFile(&user.ClientCertificate, &user.ClientCertificateData, other),
			inlineFile(&user.ClientKey, &user.ClientKeyData, other)); err != nil {
			return "", nil, fmt.Errorf("read the webhook's configuration %s: %w", path, err)
		}
	}
	c, err := clientcmd.NewDefaultClientConfig(*loaded, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return "", nil, fmt.Errorf("read the webhook's configuration %s: %w", path, err)
	}
	c.Timeout = timeout
	at, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return "", nil, fmt.Errorf("read the webhook's configuration %s: the server %q: %w", path, c.Host, err)
	}
	if client, err = rest.HTTPClientFor(c); err != nil {
		return "", nil, fmt.Errorf("set up the webhook of %s: %w", path, err)
	}
	return at.String(), client, nil
}

// inlineFile replaces the path of a file by its content, unless the content is set already.
func inlineFile(path *string, data *[]byte, other func(path string) ([]byte, error)) (err error) {
	if *path == "" {
		return nil
	}
	if len(*data) == 0 {
		if *data, err = other(*path); err != nil {
			return err
		}
	}
	*path = ""
	return nil
}

// initialBackoff is the pause before the second attempt. Each further pause is longer.
const initialBackoff = 100 * time.Millisecond

// maxResponse is the maximum size of a response, in bytes.
const maxResponse = 3 << 20

// Review sends a review, and decodes the response into it. It retries if that may help.
func (s *Server) Review(ctx context.Context, review any) error {
	text, err := json.Marshal(review)
	if err != nil {
		return fmt.Errorf("encode a review: %w", err)
	}
	pause := initialBackoff
	for attempt := 1; ; attempt++ {
		again, err := s.post(ctx, text, review)
		if err == nil || !again || attempt == s.attempts {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		pause *= 3
	}
}

func (s *Server) post(ctx context.Context, text []byte, review any) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(text))
	if err != nil {
		return false, fmt.Errorf("ask %s: %w", s.url, err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	answer, err := s.client.Do(r)
	if err != nil {
		return ctx.Err() == nil, fmt.Errorf("ask a webhook: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxResponse))
	if err != nil {
		return true, fmt.Errorf("read the answer of %s: %w", s.url, err)
	}
	if answer.StatusCode/100 != 2 {
		return answer.StatusCode == http.StatusTooManyRequests ||
			answer.StatusCode >= 500, fmt.Errorf("ask %s: it answers %s", s.url, answer.Status)
	}
	if err := json.Unmarshal(body, review); err != nil {
		return false, fmt.Errorf("read the answer of %s: %w", s.url, err)
	}
	return false, nil
}
