package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// issuer is an external token issuer. Its keys are found by discovery, and fetched again when a token has an unknown
// key.
type issuer struct {
	url, discovery string
	client         *http.Client
	now            func() time.Time

	mu       sync.Mutex
	keys     []jose.JSONWebKey
	fetched  time.Time     // time of the last attempt
	failed   error         // error of the last attempt
	fetching chan struct{} // closed at the end of a fetch in progress; nil if there is none
}

const (
	issuerTimeout = 10 * time.Second
	// refetchAfter is the minimum time between fetches, whatever tokens arrive.
	refetchAfter = 10 * time.Second
	// keyLifetime is the age at which keys are fetched again in any case, since the issuer may have withdrawn some.
	keyLifetime = time.Hour
	// keyRetryInterval is the interval of retries after a failed fetch, during which the old keys stay valid.
	// refreshTimeout is how long the request that triggers such a fetch waits.
	keyRetryInterval = time.Minute
	refreshTimeout   = 2 * time.Second
	maxResponse      = 1 << 20
)

func newIssuer(url, discovery, ca string, now func() time.Time) (*issuer, error) {
	transport := &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		IdleConnTimeout: time.Minute,
	}
	if ca != "" {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, fmt.Errorf("issuer %s: there is no certificate in its certificateAuthority", url)
		}
	}
	if discovery == "" {
		discovery = strings.TrimSuffix(url, "/") + "/.well-known/openid-configuration"
	}
	return &issuer{
		url:       url,
		discovery: discovery,
		client:    &http.Client{Transport: transport, Timeout: issuerTimeout},
		now:       now,
	}, nil
}

// keysFor returns the keys that may have signed a token with the key ID. A request with a known key does not wait for
// an issuer that does not answer. Only the request that refreshes the keys waits.
func (i *issuer) keysFor(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	for {
		i.mu.Lock()
		found, age := i.candidates(id), i.now().Sub(i.fetched)
		again := refetchAfter
		if len(found) > 0 {
			again = keyLifetime
			if i.failed != nil {
				again = keyRetryInterval
			}
		}
		busy := i.fetching
		if age < again || len(found) > 0 && busy != nil {
			err := i.failed
			i.mu.Unlock()
			if len(found) > 0 {
				err = nil
			}
			return found, err
		}
		if busy == nil {
			i.fetching = make(chan struct{})
			i.mu.Unlock()
			i.refresh(context.WithoutCancel(ctx), len(found) > 0)
			continue
		}
		i.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the keys of issuer %s: %w", i.url, ctx.Err())
		}
	}
}

// refresh fetches the keys, for all waiting requests.
func (i *issuer) refresh(ctx context.Context, hasKeys bool) {
	within := issuerTimeout
	if hasKeys {
		within = refreshTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var keys []jose.JSONWebKey
	err := fmt.Errorf("fetch the keys of issuer %s: the server failed over the answer", i.url)
	defer func() { // even if it panics: later requests with tokens of this issuer would wait
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.failed = err; err == nil {
			i.keys = keys
		}
		i.fetched = i.now()
		close(i.fetching)
		i.fetching = nil
	}()
	keys, err = i.fetch(ctx)
}

func (i *issuer) candidates(id string) (list []jose.JSONWebKey) {
	for _, k := range i.keys {
		if (k.Use == "" || k.Use == "sig") && (id == "" || k.KeyID == "" || k.KeyID == id) {
			list = append(list, k)
		}
	}
	return list
}

func (i *issuer) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	var claims struct {
		Issuer string `json:"issuer"`
		JWKS   string `json:"jwks_uri"`
	}
	if err := i.getJSON(ctx, i.discovery, &claims); err != nil {
		return nil, err
	}
	if claims.Issuer != i.url {
		return nil, fmt.Errorf("discover issuer %s: %s is of issuer %q", i.url, i.discovery, claims.Issuer)
	}
	if !strings.HasPrefix(claims.JWKS, "https://") {
		return nil, fmt.Errorf("discover issuer %s: its keys are at %q, which is not https", i.url, claims.JWKS)
	}
	var keys jose.JSONWebKeySet
	if err := i.getJSON(ctx, claims.JWKS, &keys); err != nil {
		return nil, err
	}
	if len(keys.Keys) == 0 {
		return nil, fmt.Errorf("discover issuer %s: it has no keys", i.url)
	}
	return keys.Keys, nil
}

func (i *issuer) getJSON(ctx context.Context, url string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("discover issuer %s: %w", i.url, err)
	}
	answer, err := i.client.Do(r)
	if err != nil {
		return fmt.Errorf("discover issuer %s: %w", i.url, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("discover issuer %s: %s answers %s", i.url, url, answer.Status)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxResponse))
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("discover issuer %s: read %s: %w", i.url, url, err)
	}
	return nil
}

var errExpired = errors.New("the token has expired, or is not valid yet")
