package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"clusterctl/kube/kubernetes/fake"
)

// server issues tokens for existing accounts, and accepts the tokens that the test selects.
type server struct {
	t     *testing.T
	clock *clocktesting.FakeClock
	b     *bearer

	mu                sync.Mutex
	accountExists     bool  // whether the account exists
	issuedTokens      int   // number of tokens issued
	tokenRequestError error // error of token requests
	isAccepted        func(token string) bool
	requests          []string // tokens and bodies received
}

func newServer(t *testing.T) *server {
	s := &server{t: t, clock: clocktesting.NewFakeClock(time.Now()), isAccepted: func(string) bool { return true }}
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if action.GetSubresource() == "" {
			s.accountExists = true
			return true, &corev1.ServiceAccount{}, nil
		}
		if s.tokenRequestError != nil {
			return true, nil, s.tokenRequestError
		}
		if !s.accountExists {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "x-controller")
		}
		s.issuedTokens++
		return true, &authenticationv1.TokenRequest{
			Status: authenticationv1.TokenRequestStatus{Token: fmt.Sprint("token-", s.issuedTokens)},
		}, nil
	})
	a := &account{
		name:        "x-controller",
		accounts:    client.CoreV1().ServiceAccounts("kube-system"),
		now:         s.clock.Now,
		after:       s.clock.After,
		requestSlot: make(chan struct{}, 1),
	}
	s.b = &bearer{account: a, transport: s}
	return s
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token, body := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ""
	if r.Body != nil {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(text)
	}
	s.requests = append(s.requests, token+" "+body)
	code := http.StatusOK
	if !s.isAccepted(token) {
		code = http.StatusUnauthorized
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func (s *server) send(ctx context.Context, body string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://kubernetes/", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	answer, err := s.b.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	if r.Header.Get("Authorization") != "" {
		s.t.Error("the caller's request was changed")
	}
	return answer.StatusCode, answer.Body.Close()
}

func (s *server) expectSent(body string) {
	s.t.Helper()
	if code, err := s.send(s.t.Context(), body); err != nil || code != http.StatusOK {
		s.t.Fatalf("%d %v", code, err)
	}
}

func (s *server) expectRequests(want ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got, want := strings.Join(s.requests, "; "), strings.Join(want, "; "); got != want {
		s.t.Errorf("came %s, not %s", got, want)
	}
	s.requests = nil
}

func TestAccountsAreCreatedAndTheirTokenIsReused(t *testing.T) {
	s := newServer(t)
	s.expectSent("a")
	s.expectSent("b")
	s.expectRequests("token-1 a", "token-1 b")
	if !s.accountExists || s.issuedTokens != 1 {
		t.Errorf("made %t, %d tokens", s.accountExists, s.issuedTokens)
	}
}

func TestTokensAreRenewedEarly(t *testing.T) {
	s := newServer(t)
	s.expectSent("a")
	s.clock.Step(renewAt - time.Second)
	s.expectSent("b")
	s.clock.Step(time.Second)
	// If no token is issued, the present one stays in use.
	s.tokenRequestError = apierrors.NewTooManyRequestsError("later")
	s.expectSent("c")
	s.tokenRequestError = nil
	s.clock.Step(minBackoff)
	s.expectSent("d")
	s.expectRequests("token-1 a", "token-1 b", "token-1 c", "token-2 d")
}

func TestRefusedTokensAreReplacedAndTheRequestIsRepeated(t *testing.T) {
	s := newServer(t)
	s.expectSent("a")
	s.clock.Step(2 * refusalWindow)
	s.isAccepted = func(token string) bool { return token != "token-1" }
	s.expectSent("b")
	s.expectRequests("token-1 a", "token-1 b", "token-2 b")
}

func TestRepeatedRefusalsLimitTokenRequests(t *testing.T) {
	s := newServer(t)
	s.isAccepted = func(string) bool { return false }
	sent := make(chan int, 1)
	go func() {
		code, _ := s.send(t.Context(), "a")
		sent <- code
	}()
	s.awaitTimer()
	s.expectRequests("token-1 a")
	s.clock.Step(minBackoff)
	if code := <-sent; code != http.StatusUnauthorized {
		t.Errorf("answered %d", code)
	}
	s.expectRequests("token-2 a")
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := s.send(ctx, "b")
		failed <- err
	}()
	s.awaitTimer()
	s.clock.Step(minBackoff) // shorter than the second pause
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || s.issuedTokens != 2 {
		t.Errorf("%v after %d tokens", err, s.issuedTokens)
	}
}

// awaitTimer returns when a goroutine waits for the clock.
func (s *server) awaitTimer() {
	s.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !s.clock.HasWaiters(); <-tick.C {
		if time.Now().After(end) {
			s.t.Fatal("no request waits")
		}
	}
}

// A controller that gets a 404 assumes that its object is gone, so errors about the token must not look like that.
func TestTokenErrorsDoNotLookLikeAnswersToTheRequest(t *testing.T) {
	s := newServer(t)
	s.tokenRequestError = apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "x-controller",
		errors.New("no"))
	if _, err := s.send(t.Context(), "a"); !apierrors.IsUnauthorized(err) ||
		!strings.Contains(err.Error(), "kube-system/x-controller") {
		t.Errorf("a refusal: %v", err)
	}
	s.clock.Step(maxBackoff)
	s.tokenRequestError = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "kube-system")
	if _, err := s.send(t.Context(), "a"); apierrors.IsNotFound(err) || !apierrors.IsUnauthorized(err) {
		t.Errorf("nothing found: %v", err)
	}
	s.clock.Step(maxBackoff)
	cut := errors.New("connection reset")
	s.tokenRequestError = cut
	if _, err := s.send(t.Context(), "a"); !errors.Is(err, cut) {
		t.Errorf("no answer: %v", err)
	}
	s.expectRequests()
}

func TestConcurrentRequestsShareOneTokenRequest(t *testing.T) {
	s := newServer(t)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { s.expectSent("a") })
	}
	all.Wait()
	if s.issuedTokens != 1 {
		t.Errorf("%d tokens", s.issuedTokens)
	}
}
