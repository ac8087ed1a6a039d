package identity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/kube/kubernetes"
)

// A token is renewed when a fifth of its lifetime is left. That leaves twelve minutes in which the API server may fail
// without an effect.
const (
	tokenLifetime = time.Hour
	renewAt       = tokenLifetime * 4 / 5

	requestTimeout = 10 * time.Second // limit for one token request
	minBackoff     = 100 * time.Millisecond
	maxBackoff     = 30 * time.Second
	// refusalWindow is an age. If a token that is younger is refused, the next one will probably be refused too, so the
	// account backs off.
	refusalWindow = time.Minute
)

// account is a service account with its current token.
type account struct {
	name        string
	accounts    kubernetes.ServiceAccounts // client of the manager's user
	now         func() time.Time
	after       func(time.Duration) <-chan time.Time
	requestSlot chan struct{} // a semaphore: its holder requests a token for all

	mu         sync.Mutex
	value      string // empty if there is none
	receivedAt time.Time
	backoff    time.Duration // delay before the next token request, counted from failed
	failed     time.Time
	failures   int
	reason     error // error of the last failure
}

// token returns the account's token. A caller without a token waits for at most one attempt to get one. While one
// caller renews the token, the others use the old one while it remains valid.
func (a *account) token(ctx context.Context) (string, error) {
	old, fresh, seen := a.current()
	if fresh {
		return old, nil
	}
	if old != "" {
		select {
		case a.requestSlot <- struct{}{}:
		default:
			return old, nil
		}
	} else {
		select {
		case a.requestSlot <- struct{}{}:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	defer func() { <-a.requestSlot }()
	if old, fresh, now := a.current(); fresh {
		return old, nil
	} else if now != seen && old == "" {
		return "", a.lastError() // another caller's attempt failed meanwhile
	}
	if wait := a.untilNextRequest(); wait > 0 {
		if old != "" {
			return old, nil
		}
		select {
		case <-a.after(wait):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	value, err := a.requestToken(ctx)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.value, a.receivedAt = value, a.now()
		return value, nil
	}
	if ctx.Err() != nil && old == "" {
		return "", err // the caller gave up, which says nothing about the next attempt
	}
	a.recordFailure(err)
	if old != "" {
		return old, nil
	}
	return "", err
}

// current returns the token, or "" if there is no valid one. fresh reports whether it need not be renewed yet. failures
// is the number of failed attempts.
func (a *account) current() (value string, fresh bool, failures int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	age := a.now().Sub(a.receivedAt)
	if a.value == "" || age >= tokenLifetime {
		return "", false, a.failures
	}
	return a.value, age < renewAt, a.failures
}

// untilNextRequest returns how long to wait before the next token request.
func (a *account) untilNextRequest() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed.Add(a.backoff).Sub(a.now())
}

func (a *account) lastError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reason
}

func (a *account) recordFailure(reason error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reason, a.failures = reason, a.failures+1
	a.doubleBackoff()
}

// doubleBackoff doubles the delay before the next attempt. The caller holds a.mu.
func (a *account) doubleBackoff() {
	a.failed, a.backoff = a.now(), min(max(2*a.backoff, minBackoff), maxBackoff)
}

// discardToken drops a token that the API server rejected.
func (a *account) discardToken(value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.value != value {
		return // another caller has already discarded or replaced the token
	}
	a.value = ""
	if a.now().Sub(a.receivedAt) < refusalWindow {
		a.doubleBackoff()
	} else {
		a.backoff = 0
	}
}

// requestToken requests a token from the API server. It creates the account first if it does not exist.
func (a *account) requestToken(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	seconds := int64(tokenLifetime / time.Second)
	want := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := a.accounts.CreateToken(ctx, a.name, want, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.name, Namespace: metav1.NamespaceSystem}}
		if _, err = a.accounts.Create(ctx, made, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return "", a.tokenError(err)
		}
		answer, err = a.accounts.CreateToken(ctx, a.name, want, metav1.CreateOptions{})
	}
	if err == nil && answer.Status.Token == "" {
		err = errors.New("the API server gave none")
	}
	if err != nil {
		return "", a.tokenError(err)
	}
	return answer.Status.Token, nil
}

// tokenError returns the error for a request that cannot be sent because there is no token. It must not pass on a
// status about the token as if it were about the request's object. After a 404, for example, a controller would assume
// that its object is gone.
func (a *account) tokenError(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.NewUnauthorized(fmt.Sprintf("get a token of service account %s/%s: %v", metav1.NamespaceSystem,
			a.name, err))
	}
	return fmt.Errorf("get a token of service account %s/%s: %w", metav1.NamespaceSystem, a.name, err)
}
