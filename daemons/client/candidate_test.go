package client

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/kube/kubernetes/fake"
)

// maxWait is the maximum time between two attempts of a candidate.
const maxWait = time.Duration(float64(retryPeriod) * (1 + retryJitter))

func TestFreeLeasesAreClaimed(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		holder      string
		since       time.Time
		free        bool
		transitions int
	}{
		"its own":        {"me", now, true, 3},
		"its own, over":  {"me", now.Add(-time.Hour), true, 3},
		"let go":         {"", now, true, 4},
		"of another":     {"other", now.Add(-leaseDuration + time.Second), false, 0},
		"not renewed":    {"other", now.Add(-leaseDuration), true, 4},
		"just observed":  {"other", now, false, 0},
		"long run out":   {"other", now.Add(-time.Hour), true, 4},
		"from the start": {"", time.Time{}, true, 4},
	} {
		acquired := metav1.NewTime(now.Add(-2 * time.Hour))
		held := leaseRecord{holder: c.holder, duration: leaseDuration, transitions: 3, acquired: acquired}
		next, free := nextRecord(held, "me", c.since, now)
		if free != c.free {
			t.Errorf("%s: %v", name, free)
		}
		if !free {
			continue
		}
		if next.holder != "me" || next.transitions != c.transitions || !next.renewed.Time.Equal(now) {
			t.Errorf("%s: %+v", name, next)
		}
		if kept := next.acquired.Equal(&acquired); kept != (c.holder == "me") {
			t.Errorf("%s: acquired at %v", name, next.acquired)
		}
	}
}

// lease returns a lease that another candidate holds.
func lease(holder string) *coordinationv1.Lease {
	record := leaseRecord{holder: holder, duration: leaseDuration, renewed: metav1.Now()}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "x"}, Spec: record.spec(),
	}
}

func TestExpiredLeasesAreTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, start := fake.NewClientset(lease("other")), time.Now()
		leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
		time.Sleep(time.Hour) // the age of the lease does not matter: the holder's clock may be wrong
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		led := make(chan time.Duration, 1)
		go func() {
			_ = Lead(ctx, client, "x", slog.New(slog.DiscardHandler), func(ctx context.Context) error {
				led <- time.Since(start)
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(leaseDuration - time.Second)
		// the holder renews it once
		if _, err := leases.Update(ctx, lease("other"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		renewed := time.Since(start)
		if at := <-led; at < renewed+leaseDuration || at > renewed+leaseDuration+2*maxWait {
			t.Errorf("renewed after %v and taken after %v", renewed, at)
		}
		l, err := leases.Get(ctx, "x", metav1.GetOptions{})
		if err != nil || *l.Spec.HolderIdentity == "other" || *l.Spec.LeaseTransitions != 1 {
			t.Errorf("the lease is %+v, %v", l, err)
		}
		stop()
		synctest.Wait()
	})
}

func TestHoldersGiveUpIfTheyCannotRenew(t *testing.T) {
	for name, fail := range map[string]struct {
		before func(*fake.Clientset)
		answer clienttesting.ReactionFunc
	}{
		"the server does not answer": {
			before: func(*fake.Clientset) {},
			answer: func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("connection refused")
			},
		},
		"another holds it": {
			before: func(c *fake.Clientset) {
				_ = c.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), lease("other"),
					metav1.NamespaceSystem)
			},
			answer: func(a clienttesting.Action) (bool, runtime.Object, error) {
				return a.GetVerb() == "update", nil, errors.New("conflict")
			},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset()
			var failing atomic.Bool
			client.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if !failing.Load() {
					return false, nil, nil
				}
				return fail.answer(a)
			})
			start := time.Now()
			err := Lead(t.Context(), client, "x", slog.New(slog.DiscardHandler), func(ctx context.Context) error {
				time.Sleep(time.Minute)
				fail.before(client)
				failing.Store(true)
				start = time.Now()
				<-ctx.Done()
				return ctx.Err()
			})
			if took := time.Since(start); err == nil || !strings.Contains(err.Error(), "lost the lease x") ||
				took > renewDeadline+2*retryPeriod {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		})
	}
}

func TestLeasesAreRenewedWhileTheHolderRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		ctx, stop := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Minute); stop() }()
		err := Lead(ctx, client, "x", slog.New(slog.DiscardHandler), func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute) // active finishes what it has started
			l, err := client.CoordinationV1().
				Leases(metav1.NamespaceSystem).
				Get(context.WithoutCancel(ctx), "x", metav1.GetOptions{})
			if err != nil || *l.Spec.HolderIdentity == "" || time.Since(l.Spec.RenewTime.Time) > 2*retryPeriod {
				t.Errorf("the lease is %+v, %v", l, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		l, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "x", metav1.GetOptions{})
		if err != nil || *l.Spec.HolderIdentity != "" {
			t.Errorf("the lease is %+v, %v", l, err)
		}
	})
}
