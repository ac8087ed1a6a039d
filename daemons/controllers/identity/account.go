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

// Another token is asked for when a fifth of a token's life is left. That is twelve minutes in which the API server may
// be away or refuse before anybody notices.
const (
	lifetime = time.Hour
	renewAt  = lifetime * 4 / 5

	askTimeout = 10 * time.Second // for an answer
	firstPause = 100 * time.Millisecond
	widePause  = 30 * time.Second
	// doubtful is the age up to which a token that is refused says that the next one will be, too.
	doubtful = time.Minute
)

// account is a service account and the token that it has now.
type account struct {
	name     string
	accounts kubernetes.ServiceAccounts // asked by the manager's user
	now      func() time.Time
	after    func(time.Duration) <-chan time.Time
	turn     chan struct{} // held by the one of many requests that asks for a token

	mu       sync.Mutex
	value    string // empty: there is none
	got      time.Time
	pause    time.Duration // before the next token is asked for, counted from failed
	failed   time.Time
	failures int
	reason   error // of the last failure
}

// token returns the account's token. A request waits for at most one attempt to get one, while others go on with the
// token that is to be replaced, as long as that is good.
func (a *account) token(ctx context.Context) (string, error) {
	old, fresh, seen := a.have()
	if fresh {
		return old, nil
	}
	if old != "" {
		select {
		case a.turn <- struct{}{}:
		default:
			return old, nil
		}
	} else {
		select {
		case a.turn <- struct{}{}:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	defer func() { <-a.turn }()
	if old, fresh, now := a.have(); fresh {
		return old, nil
	} else if now != seen && old == "" {
		return "", a.why() // the attempt that was waited for failed
	}
	if wait := a.wait(); wait > 0 {
		if old != "" {
			return old, nil
		}
		select {
		case <-a.after(wait):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	value, err := a.ask(ctx)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.value, a.got = value, a.now()
		return value, nil
	}
	if ctx.Err() != nil && old == "" {
		return "", err // which says nothing of the next attempt
	}
	a.fail(err)
	if old != "" {
		return old, nil
	}
	return "", err
}

// have returns the token, empty when there is none that is good, whether it need not be replaced yet, and how many
// attempts have failed.
func (a *account) have() (value string, fresh bool, failures int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	age := a.now().Sub(a.got)
	if a.value == "" || age >= lifetime {
		return "", false, a.failures
	}
	return a.value, age < renewAt, a.failures
}

// wait is how long no token is asked for yet.
func (a *account) wait() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed.Add(a.pause).Sub(a.now())
}

func (a *account) why() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reason
}

func (a *account) fail(reason error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reason, a.failures = reason, a.failures+1
	a.backOff()
}

// backOff makes the next attempt wait, longer each time. The lock is held.
func (a *account) backOff() {
	a.failed, a.pause = a.now(), min(max(2*a.pause, firstPause), widePause)
}

// refused drops a token that the API server does not take.
func (a *account) refused(value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.value != value {
		return // another has dropped it
	}
	a.value = ""
	if a.now().Sub(a.got) < doubtful {
		a.backOff()
	} else {
		a.pause = 0
	}
}

// ask gets a token of the API server, and makes the account first where there is none.
func (a *account) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	seconds := int64(lifetime / time.Second)
	want := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := a.accounts.CreateToken(ctx, a.name, want, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.name, Namespace: metav1.NamespaceSystem}}
		if _, err = a.accounts.Create(ctx, made, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return "", a.without(err)
		}
		answer, err = a.accounts.CreateToken(ctx, a.name, want, metav1.CreateOptions{})
	}
	if err == nil && answer.Status.Token == "" {
		err = errors.New("the API server gave none")
	}
	if err != nil {
		return "", a.without(err)
	}
	return answer.Status.Token, nil
}

// without is the error of a request that has no token to be sent with. What the API server says of the token is not
// what it says of the request's object: a controller that hears that nothing is found would take its object for gone.
func (a *account) without(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.NewUnauthorized(
			fmt.Sprintf("get a token of service account %s/%s: %v", metav1.NamespaceSystem, a.name, err),
		)
	}
	return fmt.Errorf("get a token of service account %s/%s: %w", metav1.NamespaceSystem, a.name, err)
}
