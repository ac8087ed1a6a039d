package authn

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Users stay authenticated while the issuer of their tokens does not answer.
// Proves S12.
func TestKnownKeysVerifyWhileTheIssuerHangs(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	i, err := newIssuer("https://issuer.example", "", "", func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	down := errors.New("it is down")
	i.client = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		entered <- struct{}{}
		<-release
		return nil, down
	})}
	i.keys, i.fetched = []jose.JSONWebKey{{KeyID: "a"}}, now.Add(-keyLifetime)
	isKnown := func() error {
		keys, err := i.keysFor(t.Context(), "a")
		if err == nil && len(keys) != 1 {
			err = errors.New("the key is not found")
		}
		return err
	}
	for range 2 { // each time a fetch is due
		first := make(chan error, 1)
		go func() { first <- isKnown() }()
		<-entered
		if err := isKnown(); err != nil {
			t.Errorf("while another one asks: %v", err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := i.keysFor(cancelled, "b"); !errors.Is(err, context.Canceled) {
			t.Errorf("who does not wait for a key that is not known: %v", err)
		}
		release <- struct{}{}
		if err := <-first; err != nil {
			t.Errorf("the request that failed: %v", err)
		}
		// The transport would block another request.
		if err := isKnown(); err != nil {
			t.Errorf("after a failed request: %v", err)
		}
		if _, err := i.keysFor(t.Context(), "b"); !errors.Is(err, down) {
			t.Errorf("a key that is not known: %v, want %v", err, down)
		}
		now = now.Add(keyRetryInterval)
	}
}

// If fetching an issuer's keys panics, later requests do not wait for it.
// Proves S12.
func TestPanicDuringKeyFetchReleasesWaiters(t *testing.T) {
	i, err := newIssuer("https://issuer.example", "", "", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	i.client = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { panic("what is this") })}
	func() {
		defer func() { _ = recover() }() // as the server does for each request
		_, _ = i.keysFor(t.Context(), "a")
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := i.keysFor(ctx, "a"); err == nil || ctx.Err() != nil {
		t.Errorf("the next one: %v", err)
	}
}
