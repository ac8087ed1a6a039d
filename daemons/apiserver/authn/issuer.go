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

// issuer is somebody else's issuer of tokens: where its keys are is discovered, and they are
// fetched again when a token has one that is not known.
type issuer struct {
	url, discovery string
	client         *http.Client
	now            func() time.Time

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetched time.Time // when last tried
	failed  error     // what that ended with
}

const (
	issuerTimeout = 10 * time.Second
	// refetchAfter is how long keys are not fetched again, whatever tokens come.
	refetchAfter = 10 * time.Second
	// keysLast is after how long they are fetched anyway, since an issuer may have withdrawn some.
	keysLast      = time.Hour
	largestAnswer = 1 << 20
)

func newIssuer(url, discovery, ca string, now func() time.Time) (*issuer, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, IdleConnTimeout: time.Minute}
	if ca != "" {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, fmt.Errorf("issuer %s: there is no certificate in its certificateAuthority", url)
		}
	}
	if discovery == "" {
		discovery = strings.TrimSuffix(url, "/") + "/.well-known/openid-configuration"
	}
	return &issuer{url: url, discovery: discovery, client: &http.Client{Transport: transport, Timeout: issuerTimeout}, now: now}, nil
}

// key returns the keys that a token with the key id may be signed with.
func (i *issuer) key(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	found := i.candidates(id)
	age := i.now().Sub(i.fetched)
	if len(found) > 0 && age < keysLast || age < refetchAfter {
		if len(found) == 0 && i.failed != nil {
			return nil, i.failed
		}
		return found, nil
	}
	// Whoever comes meanwhile waits for this one.
	i.fetched = i.now()
	keys, err := i.fetch(context.WithoutCancel(ctx))
	if i.failed = err; err == nil {
		i.keys = keys
	} else if len(found) == 0 {
		return nil, err
	}
	return i.candidates(id), nil
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
	ctx, cancel := context.WithTimeout(ctx, issuerTimeout)
	defer cancel()
	var says struct {
		Issuer string `json:"issuer"`
		JWKS   string `json:"jwks_uri"`
	}
	if err := i.get(ctx, i.discovery, &says); err != nil {
		return nil, err
	}
	if says.Issuer != i.url {
		return nil, fmt.Errorf("discover issuer %s: %s is of issuer %q", i.url, i.discovery, says.Issuer)
	}
	if !strings.HasPrefix(says.JWKS, "https://") {
		return nil, fmt.Errorf("discover issuer %s: its keys are at %q, which is not https", i.url, says.JWKS)
	}
	var keys jose.JSONWebKeySet
	if err := i.get(ctx, says.JWKS, &keys); err != nil {
		return nil, err
	}
	if len(keys.Keys) == 0 {
		return nil, fmt.Errorf("discover issuer %s: it has no keys", i.url)
	}
	return keys.Keys, nil
}

func (i *issuer) get(ctx context.Context, url string, into any) error {
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
	body, err := io.ReadAll(io.LimitReader(answer.Body, largestAnswer))
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("discover issuer %s: read %s: %w", i.url, url, err)
	}
	return nil
}

var errExpired = errors.New("the token has expired, or is not valid yet")
