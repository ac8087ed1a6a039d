package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/daemons/ingress/route"
	"clusterctl/kube/kubernetes/fake"
)

func tlsSecret(name, content string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: content},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: []byte(content), "other": []byte("x")}}
}

// TestOnlyReferencedSecretsAreRead follows more Secrets than can have a watch. One is forbidden at first, one is
// missing, and one changes.
// Proves S32.
func TestOnlyReferencedSecretsAreRead(t *testing.T) {
	client := fake.NewClientset(tlsSecret("unused", "1"))
	const all = maxWatched + 20
	for i := range all {
		if err := client.Tracker().Add(tlsSecret(fmt.Sprint("s", i), "1")); err != nil {
			t.Fatal(err)
		}
	}
	addLateSecret(t, client)
	var mu sync.Mutex
	watches := map[string]*apiwatch.RaceFreeFakeWatcher{} // the fake client's watch ignores field selectors
	client.PrependWatchReactor("secrets", func(a clienttesting.Action) (bool, apiwatch.Interface, error) {
		name, exact := a.(clienttesting.WatchAction).GetWatchRestrictions().Fields.RequiresExactMatch(
			metav1.ObjectNameField)
		if !exact || name == "" {
			t.Errorf("all secrets are watched: %v", a)
		}
		mu.Lock()
		defer mu.Unlock()
		watches[name] = apiwatch.NewRaceFreeFake()
		return true, watches[name], nil
	})
	seen, calls := map[string]string{}, map[string]int{}
	ctx, stop := context.WithCancel(t.Context())
	s := newSecretWatcher(client, slog.New(slog.DiscardHandler),
		func(ctx context.Context, key route.Key, secret *corev1.Secret) {
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				return
			}
			calls[key.Name]++
			if seen[key.Name] = noVersion; secret != nil {
				if seen[key.Name] = string(secret.Data[corev1.TLSCertKey]); secret.Data["other"] != nil {
					t.Errorf("secret %s has more than a certificate", key)
				}
			}
		})
	s.pause = time.Millisecond
	defer func() { stop(); s.wait() }()
	until := func(name, want string) {
		t.Helper()
		waitForSecret(t, name, want, func() string {
			mu.Lock()
			defer mu.Unlock()
			return seen[name]
		})
	}
	for i := range all {
		s.follow(ctx, route.Key{Namespace: "shop", Name: fmt.Sprint("s", i)})
	}
	for _, name := range []string{"late", "missing"} {
		s.follow(ctx, route.Key{Namespace: "shop", Name: name})
	}
	<-s.whenAnswered()
	until("s0", "1")
	until("missing", noVersion)
	until("late", "1")
	changeSecrets(t, client, "s0", fmt.Sprint("s", all-1), "missing")
	for open := false; !open; time.Sleep(time.Millisecond) {
		mu.Lock()
		if w := watches["s0"]; w != nil {
			w.Modify(tlsSecret("s0", "2"))
			open = true
		}
		mu.Unlock()
	}
	until("s0", "2")
	until(fmt.Sprint("s", all-1), "2")
	until("missing", "2")
	mu.Lock()
	if again := calls[fmt.Sprint("s", all-2)]; again != 1 {
		t.Errorf("an unchanged secret was reported %d times", again)
	}
	mu.Unlock()
	s.unfollow(route.Key{Namespace: "shop", Name: "s0"})
	s.follow(ctx, route.Key{Namespace: "shop", Name: "s0"})
	<-s.whenAnswered()
	checkReads(t, client)
}

// waitForSecret waits until the current value is as wanted.
func waitForSecret(t *testing.T, name, want string, current func() string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got := current()
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("secret %s is %q, want %q", name, got, want)
		}
	}
}

// changeSecrets updates Secrets, and creates the missing one.
func changeSecrets(t *testing.T, client *fake.Clientset, names ...string) {
	for _, name := range names {
		write := client.Tracker().Add
		if name != "missing" {
			write = func(o runtime.Object) error {
				return client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), o, "shop")
			}
		}
		if err := write(tlsSecret(name, "2")); err != nil {
			t.Fatal(err)
		}
	}
}

// checkReads checks that only referenced Secrets were read.
func checkReads(t *testing.T, client *fake.Clientset) {
	for _, a := range client.Actions() {
		switch a := a.(type) {
		case clienttesting.ListAction:
			t.Errorf("secrets were listed: %v", a)
		case clienttesting.GetAction:
			if a.GetName() == "unused" {
				t.Error("a secret without references was read")
			}
		}
	}
}

// addLateSecret adds a Secret that is forbidden at first.
func addLateSecret(t *testing.T, client *fake.Clientset) {
	var refused atomic.Int32
	refused.Store(2)
	client.PrependReactor("get", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if name := a.(clienttesting.GetAction).GetName(); name == "late" && refused.Add(-1) >= 0 {
			return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), name, nil)
		}
		return false, nil, nil
	})
	if err := client.Tracker().Add(tlsSecret("late", "1")); err != nil {
		t.Fatal(err)
	}
}

// TestAKnownSecretIsRemovedAfterRepeatedRefusals simulates an API server that has just started and does not know yet
// which objects refer to a Secret.
// Proves S32.
func TestAKnownSecretIsRemovedAfterRepeatedRefusals(t *testing.T) {
	for _, c := range []struct {
		refusals int
		want     string // reported versions, in order
	}{
		{0, "1"}, {maxForbidden, "1"}, {maxForbidden + 1, "1 -"},
	} {
		client := fake.NewClientset(tlsSecret("s", "1"))
		left := 0
		client.PrependReactor("get", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if left--; left >= 0 {
				return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), "s", nil)
			}
			return false, nil, nil
		})
		var seen []string
		s := newSecretWatcher(client, slog.New(slog.DiscardHandler),
			func(_ context.Context, _ route.Key, secret *corev1.Secret) {
				if secret == nil {
					seen = append(seen, noVersion)
				} else {
					seen = append(seen, secret.ResourceVersion)
				}
			})
		f := &followedSecret{key: route.Key{Namespace: "shop", Name: "s"}, ctx: t.Context()}
		s.unansweredCount, s.allAnswered = 1, make(chan struct{})
		if _, err := s.read(f); err != nil {
			t.Fatal(err)
		}
		for left = c.refusals; left > 0; {
			if _, err := s.read(f); !apierrors.IsForbidden(err) {
				t.Fatal(err)
			}
		}
		if got := strings.Join(seen, " "); got != c.want {
			t.Errorf("after %d refusals, the reported versions are %q, want %q", c.refusals, got, c.want)
		}
	}
}

// TestSecretsWithoutAWatchArePolledAtIntervals checks which Secrets are read next when few Secrets have no watch.
// Proves S32.
func TestSecretsWithoutAWatchArePolledAtIntervals(t *testing.T) {
	client := fake.NewClientset(tlsSecret("s", "1"))
	s := newSecretWatcher(client, slog.New(slog.DiscardHandler), func(context.Context, route.Key, *corev1.Secret) {})
	f := &followedSecret{key: route.Key{Namespace: "shop", Name: "s"}, ctx: t.Context()}
	s.secrets[f.key], s.readNow, s.unansweredCount, s.allAnswered = f, []*followedSecret{f}, 1, make(chan struct{})
	some, again := s.nextReads()
	if len(some) != 1 || !again {
		t.Fatalf("a new secret is not read at once: %v, %v", some, again)
	}
	s.pollSecret(f)
	if some, again := s.nextReads(); len(some) > 0 || again {
		t.Errorf("the secret is read again without a pause: %v, %v", some, again)
	}
	f.pollAt = time.Now()
	if some, again := s.nextReads(); len(some) != 1 || again {
		t.Errorf("the secret is not read when it is due: %v, %v", some, again)
	}
}
