// Package remote asks other servers that have a say in who asks and who may: reviews are sent
// to them and come back with an answer in their status. What is asked, and what follows, is
// packages authn's and authz'.
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

// Server is one that reviews are sent to.
type Server struct {
	url      string
	client   *http.Client
	attempts int
}

// New returns the server that a kubeconfig's text says, which lies at path. timeout bounds one attempt. What other
// files it names is read with other, so that who follows the kubeconfig follows them, too.
func New(text []byte, path string, timeout time.Duration, other func(path string) ([]byte, error)) (*Server, error) {
	url, client, err := Client(text, path, timeout, other)
	if err != nil {
		return nil, err
	}
	return &Server{url: url, client: client, attempts: 3}, nil
}

// Client is how a kubeconfig's server is reached: its cluster is the server, and its user is who the API server is to
// it. Files that it names are taken from where it lies and read with other; a token's file is read again by the client
// itself.
func Client(
	text []byte,
	path string,
	timeout time.Duration,
	other func(path string) ([]byte, error),
) (url string, client *http.Client, err error) {
	says, err := clientcmd.Load(text)
	if err != nil {
		return "", nil, fmt.Errorf("read the webhook's configuration %s: %w", path, err)
	}
	for _, cluster := range says.Clusters {
		cluster.LocationOfOrigin = path
	}
	for _, user := range says.AuthInfos {
		user.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(says); err != nil {
		return "", nil, fmt.Errorf("read the webhook's configuration %s: %w", path, err)
	}
	for _, cluster := range says.Clusters {
		if err := inline(&cluster.CertificateAuthority, &cluster.CertificateAuthorityData, other); err != nil {
			return "", nil, fmt.Errorf("read the webhook's configuration %s: %w", path, err)
		}
	}
	for _, user := range says.AuthInfos {
		if err := errors.Join(inline(&user.ClientCertificate, &user.ClientCertificateData, other),
			inline(&user.ClientKey, &user.ClientKeyData, other)); err != nil {
			return "", nil, fmt.Errorf("read the webhook's configuration %s: %w", path, err)
		}
	}
	c, err := clientcmd.NewDefaultClientConfig(*says, &clientcmd.ConfigOverrides{}).ClientConfig()
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

// inline puts what a file has in place of its path, unless that is there already.
func inline(path *string, data *[]byte, other func(path string) ([]byte, error)) (err error) {
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

// firstPause is before the second attempt; each further one is longer.
const firstPause = 100 * time.Millisecond

// largest is how long an answer may be.
const largest = 3 << 20

// Ask sends a review and reads the answer into it. What may help is tried again.
func (s *Server) Ask(ctx context.Context, review any) error {
	text, err := json.Marshal(review)
	if err != nil {
		return fmt.Errorf("encode a review: %w", err)
	}
	pause := firstPause
	for attempt := 1; ; attempt++ {
		again, err := s.ask(ctx, text, review)
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

func (s *Server) ask(ctx context.Context, text []byte, review any) (again bool, err error) {
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
	body, err := io.ReadAll(io.LimitReader(answer.Body, largest))
	if err != nil {
		return true, fmt.Errorf("read the answer of %s: %w", s.url, err)
	}
	if answer.StatusCode/100 != 2 {
		return answer.StatusCode == http.StatusTooManyRequests ||
				answer.StatusCode >= 500, fmt.Errorf(
				"ask %s: it answers %s",
				s.url,
				answer.Status,
			)
	}
	if err := json.Unmarshal(body, review); err != nil {
		return false, fmt.Errorf("read the answer of %s: %w", s.url, err)
	}
	return false, nil
}
